// OpenSaves: saves whose fate is not settled, or is bad and nobody has looked.

#ifndef TIDEMARK_SNAPSHOT_SAVES_OPEN_SAVES_H_
#define TIDEMARK_SNAPSHOT_SAVES_OPEN_SAVES_H_

#include <cstdint>
#include <functional>
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
  // Makes room for one Add, which then throws nothing.
  void Reserve();

  // `persist`: see SaveRequest. One that is not to be saved is never in flight, even while it is being evaluated; but
  // if it could not be staged, somebody must hear of it.
  void Add(int64_t step, Future staged, Future committed, bool persist = true);

  bool IsInFlight(int64_t step) const;
  bool AnyInFlight() const;

  // The `committed` of the step's last save that is to be saved; nothing if that is settled.
  std::optional<Future> CommittedOf(int64_t step) const;

  // Blocks until every save that is to be saved is staged and settled.
  void AwaitAll() const;

  // The first failure that the trainer has not read; it then counts as read. A save whose staging failed counts as read
  // if the result of either future was. Failures that there was no room for come last, as one.
  absl::Status TakeFailure();

  // The `committed` of the first failed save whose failure the trainer has not read; this call does not count as
  // reading. Each such save is given to `tell` once. Of those after the first ten only the number is kept, and the last
  // failure. Empty: there is none.
  std::optional<Future> FirstUnseenFailure(const std::function<void(int64_t step, const absl::Status& failure)>& tell);

 private:
  struct OpenSave {
    int64_t step;
    Future staged;
    Future committed;
    bool persist;
    bool told = false;  // by FirstUnseenFailure
  };
  // Whether the save has ended and needs no report: it succeeded, or the trainer has read its failure.
  static bool IsDone(const OpenSave& save);
  mutable absl::Mutex mutex_;
  std::vector<OpenSave> saves_ ABSL_GUARDED_BY(mutex_);  // in order
  int64_t others_ ABSL_GUARDED_BY(mutex_) = 0;           // failed, unread, and not in the list
  absl::Status last_other_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_SAVES_OPEN_SAVES_H_
