// Ranks that are threads of one process.

#ifndef TIDEMARK_TESTS_SNAPSHOT_RANKS_THREAD_GATHER_H_
#define TIDEMARK_TESTS_SNAPSHOT_RANKS_THREAD_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tidemark {

// An all-gather of threads. A rank that does not come in time makes it fail for those that have.
class ThreadGather {
 public:
  explicit ThreadGather(int32_t world_size, absl::Duration timeout = absl::Minutes(2))
      : given_(static_cast<size_t>(world_size)), timeout_(timeout) {}

  absl::StatusOr<std::vector<std::string>> Gather(int32_t rank, const std::string& bytes) {
    absl::MutexLock lock(&mutex_);
    const uint64_t round = round_;
    given_[static_cast<size_t>(rank)] = bytes;
    if (++arrived_ == given_.size()) {
      arrived_ = 0;
      ++round_;
      gathered_ = given_;
      return gathered_;
    }
    const auto is_over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return round_ != round; };
    if (mutex_.AwaitWithTimeout(absl::Condition(&is_over), timeout_)) return gathered_;
    return absl::DeadlineExceededError("a rank did not come");
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> given_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> gathered_ ABSL_GUARDED_BY(mutex_);  // of the last round; all have left the one before it
  size_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  const absl::Duration timeout_;
};

// Calls `function` for each rank on a thread of its own, and returns what each returns.
template <typename Function>
auto OnEachRank(int32_t world_size, const Function& function) {
  std::vector<std::invoke_result_t<Function, int32_t>> results(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = function(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_RANKS_THREAD_GATHER_H_
