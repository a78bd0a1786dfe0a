#include "storage/io/thread_priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "storage/io/errno_status.h"

namespace tidemark::storage {
namespace {

// The kernel's numbers, from ioprio_set(2): its own header is not C++ any more since Linux 6.5.
constexpr int kWhoIsAThread = 1;
constexpr int kIdleClass = 3 << 13;

// To Linux, process 0 is the calling thread here, whatever POSIX says.
absl::Status AddNice(int nice) {
  errno = 0;
  const int before = getpriority(PRIO_PROCESS, 0);
  if (errno != 0) return ErrnoStatus(errno, "get the niceness of", "a thread");
  if (setpriority(PRIO_PROCESS, 0, std::min(before + nice, kNiceMax)) != 0) {
    return ErrnoStatus(errno, "set the niceness of", "a thread");
  }
  return absl::OkStatus();
}

absl::Status SetIdleIo() {
  if (syscall(SYS_ioprio_set, kWhoIsAThread, 0, kIdleClass) != 0) {
    return ErrnoStatus(errno, "set the I/O priority of", "a thread");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LowerThreadPriority(int nice, bool idle_io) {
  absl::Status status;
  if (nice > 0) status.Update(AddNice(nice));
  if (idle_io) status.Update(SetIdleIo());
  return status;
}

}  // namespace tidemark::storage
