// What the bench is doing, on standard error: one line that changes on a terminal, one line for each row elsewhere.

#ifndef TIDEMARK_BENCH_PROGRESS_H_
#define TIDEMARK_BENCH_PROGRESS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidemark::bench {

// Thread-safe.
class Progress {
 public:
  Progress();

  void BeginRow(size_t number, size_t count, std::string_view name);
  void Pair(int pair, int pairs);
  void Say(std::string_view what);
  void EndRow(std::string_view result);

  // A line that stays.
  void Warn(std::string_view line);

 private:
  void Show(std::string_view what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool is_terminal_;
  absl::Mutex mutex_;
  std::string row_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_PROGRESS_H_
