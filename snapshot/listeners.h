// Listeners: calls the user's CheckpointObserver such that no exception of it gets into the checkpointer.

#ifndef TIDEMARK_SNAPSHOT_LISTENERS_H_
#define TIDEMARK_SNAPSHOT_LISTENERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tidemark/checkpoint_observer.h"

namespace tidemark {

// Immutable; as thread-safe as the observer is. A warning names a function that throws. If Warning throws, the line
// goes to standard error. Throws nothing: a call that there is no memory for is dropped, and so is a warning, with a
// line on standard error.
class Listeners {
 public:
  // Null: warnings go to standard error.
  explicit Listeners(std::shared_ptr<CheckpointObserver> observer);

  void Committed(const StepInfo& info) const;
  void Failed(int64_t step, const absl::Status& status) const;
  void Deleted(int64_t step, std::string_view reason) const;
  void Evaluated(int64_t step, const Evaluation& evaluation) const;
  void Exported(int64_t step, std::string_view path) const;
  // Lines may quote other processes, so control characters are written out: see printable_text.h.
  void SaveLine(const std::string& line) const;
  void Warn(std::string_view line) const;

 private:
  void Call(std::string_view name, const std::function<void()>& call) const;

  const std::shared_ptr<CheckpointObserver> observer_;  // not null
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_LISTENERS_H_
