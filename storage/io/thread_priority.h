// Makes a thread step back behind the trainer's.

#ifndef TIDEMARK_STORAGE_IO_THREAD_PRIORITY_H_
#define TIDEMARK_STORAGE_IO_THREAD_PRIORITY_H_

#include "absl/status/status.h"

namespace tidemark::storage {

inline constexpr int kNiceMax = 19;

// Adds `nice` (0 to kNiceMax) to the calling thread's niceness, up to kNiceMax, and, if `idle_io`, puts it into the
// kernel's idle I/O class: its transfers, those it submits to a ring included, run when the disk has nothing else to
// do, on disks whose I/O scheduler knows classes. Threads that it starts from then on inherit both. Does what it can;
// the status is the first refusal's.
absl::Status LowerThreadPriority(int nice, bool idle_io);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_THREAD_PRIORITY_H_
