// StagingProgress: how much of a snapshot has been copied, so that it can be written while the rest is still coming.

#ifndef TIDEMARK_SNAPSHOT_STAGING_STAGING_PROGRESS_H_
#define TIDEMARK_SNAPSHOT_STAGING_STAGING_PROGRESS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/deadline.h"

namespace tidemark {

// Thread-safe. Outlives the snapshot's memory: whoever waits holds no part of it.
class StagingProgress {
 public:
  // A snapshot of `total_bytes` that is copied in runs, which begin at these offsets in it, ascending. What lies before
  // the first run is there already.
  StagingProgress(std::vector<uint64_t> run_begins, uint64_t total_bytes);

  // All bytes of this run are there.
  void FinishRun(size_t run);

  // Staging has ended: well, with every run finished, or not. Exactly once.
  void End(const absl::Status& status);

  // Blocks until the bytes [0, end) are there, or staging has failed, and returns that failure. Those of the last run
  // count as there when staging has ended, so that whoever has seen all bytes knows that nothing else will change.
  absl::Status WaitFor(uint64_t end) const;

  // How staging ended; not there: it has not.
  std::optional<absl::Status> outcome() const;

  // Blocks until staging has ended.
  absl::Status WaitUntilEnded() const { return WaitFor(total_bytes_ + 1); }
  // The same, however it ends. False: not by the deadline.
  bool WaitUntilEndedBy(const Deadline& deadline) const;

 private:
  const std::vector<uint64_t> run_begins_;
  const uint64_t total_bytes_;

  std::atomic<uint64_t> filled_;  // bytes [0, filled_) are there; more than total_bytes_: staging ended well

  mutable absl::Mutex mutex_;
  std::vector<bool> finished_ ABSL_GUARDED_BY(mutex_);  // by run
  size_t first_unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  mutable MonotonicCondVar has_ended_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_STAGING_PROGRESS_H_
