// OwnerProcess: the process that made an object. In a child that it forks the object's threads are missing, and its
// mutexes may be held for ever.

#ifndef TIDEMARK_SNAPSHOT_PROCESS_OWNER_PROCESS_H_
#define TIDEMARK_SNAPSHOT_PROCESS_OWNER_PROCESS_H_

#include <sys/types.h>
#include <unistd.h>

#include "absl/status/status.h"

namespace tidemark {

// Immutable. The process that constructs it is the owner.
class OwnerProcess {
 public:
  bool is_this() const { return getpid() == owner_; }

  // kFailedPrecondition: this is a child of the owner.
  absl::Status Check() const;

 private:
  const pid_t owner_ = getpid();
};

// From this call on, a forked child that calls exit() skips the destructors of the objects that are static by now. Call
// it after RocksDB has been used. Destructors of some of RocksDB's static objects wait for their threads, and a child
// has none of these. Buffered output is written all the same. Thread-safe; once is enough.
void LeaveOutStaticDestructorsInChildren();

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_PROCESS_OWNER_PROCESS_H_
