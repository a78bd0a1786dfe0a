// LeaseRenewal: a thread that keeps a lease alive while its holder is busy.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_LEASE_RENEWAL_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_LEASE_RENEWAL_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "snapshot/deadline.h"

namespace tidemark {

// Owned by one thread.
class LeaseRenewal {
 public:
  // Calls `renew` on a thread of its own, every `interval`, until it is stopped or `renew` says kAborted.
  // A wall clock that is set does not change the interval. kResourceExhausted: no thread.
  static absl::StatusOr<std::unique_ptr<LeaseRenewal>> Start(std::function<absl::Status()> renew,
                                                             absl::Duration interval);
  ~LeaseRenewal();

  // Waits for a renewal that is under way. Returns what the last one said; ok if there was none. Idempotent.
  absl::Status Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  LeaseRenewal(std::function<absl::Status()> renew, absl::Duration interval);
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::function<absl::Status()> renew_;
  const absl::Duration interval_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar stops_;
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_LEASE_RENEWAL_H_
