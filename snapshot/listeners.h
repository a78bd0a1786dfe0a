// Listeners: the callbacks of CheckpointerOptions, called so that nothing they throw gets into the checkpointer.

#ifndef TIDEMARK_SNAPSHOT_LISTENERS_H_
#define TIDEMARK_SNAPSHOT_LISTENERS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

// Immutable; as thread-safe as the callbacks are. One that throws is named in a warning; where on_warning itself does,
// the line goes to standard error.
class Listeners {
 public:
  // Takes what there is; what is not set is not called.
  explicit Listeners(const CheckpointerOptions& options);

  void Committed(const StepInfo& info) const;
  void Failed(int64_t step, const absl::Status& status) const;
  void Deleted(int64_t step, std::string_view reason) const;
  void Evaluated(int64_t step, const Evaluation& evaluation) const;
  // These may quote other processes: control characters are written out, see printable_text.h.
  void SaveLine(const std::string& line) const;
  void Warn(std::string_view line) const;

  // What RetentionOptions::keep says of a step; one that throws keeps it.
  bool Keep(const std::function<bool(const StepInfo&)>& keep, const StepInfo& info) const;

 private:
  void Call(std::string_view name, const std::function<void()>& call) const;

  const std::function<void(const StepInfo&)> committed_;
  const std::function<void(int64_t, const absl::Status&)> failed_;
  const std::function<void(int64_t, std::string_view)> deleted_;
  const std::function<void(int64_t, const Evaluation&)> evaluated_;
  const std::function<void(std::string_view)> save_line_;
  const std::function<void(std::string_view)> warning_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_LISTENERS_H_
