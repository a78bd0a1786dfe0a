// OpenSaves: saves whose fate is not settled, or is bad and nobody has looked.

#ifndef TIDEMARK_SNAPSHOT_OPEN_SAVES_H_
#define TIDEMARK_SNAPSHOT_OPEN_SAVES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "tidemark/future.h"

namespace tidemark {

// Thread-safe.
class OpenSaves {
 public:
  // `persist`: see SaveOptions. One that is not to be saved is never in flight, however long it is being evaluated; but
  // if it could not be staged, somebody must hear of it.
  void Add(int64_t step, Future staged, Future committed, bool persist = true);

  bool IsInFlight(int64_t step) const;

  // The `committed` of the step's last save that is to be saved; nothing if that is settled.
  std::optional<Future> CommittedOf(int64_t step) const;

  // The first failure that nobody has looked at, which has been now. A save whose staging failed has been looked at by
  // whoever was given either future's result.
  absl::Status TakeFailure();

 private:
  struct OpenSave {
    int64_t step;
    Future staged;
    Future committed;
    bool persist;
  };
  mutable absl::Mutex mutex_;
  std::vector<OpenSave> saves_ ABSL_GUARDED_BY(mutex_);  // in order
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_OPEN_SAVES_H_
