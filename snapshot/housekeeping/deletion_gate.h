// DeletionGate: whether steps may be deleted now. No step is deleted while a restore runs.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_DELETION_GATE_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_DELETION_GATE_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tidemark {

// Thread-safe. Outlives its deletions.
class DeletionGate {
 public:
  // A deletion in progress, until its destruction.
  struct EndDeletion {
    void operator()(DeletionGate* gate) const;
  };
  using Deletion = std::unique_ptr<DeletionGate, EndDeletion>;

  // `what` begins the message of an error: "step 5 is not deleted". kFailedPrecondition: another deletion is in
  // progress, and a callback of it makes this call; or End was called (ClosedError, without `what`). kUnavailable: it
  // is paused.
  absl::StatusOr<Deletion> Begin(std::string_view what);

  // Nothing is deleted between the two. Pause waits for the deletion in progress.
  void Pause();
  void Resume();
  bool paused() const;

  // No deletion begins from now on. The one in progress goes on.
  void End();
  bool ended() const;

 private:
  mutable absl::Mutex mutex_;
  int64_t pauses_ ABSL_GUARDED_BY(mutex_) = 0;
  bool deleting_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_DELETION_GATE_H_
