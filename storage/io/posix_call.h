// System calls that a signal may interrupt.

#ifndef TIDEMARK_STORAGE_IO_POSIX_CALL_H_
#define TIDEMARK_STORAGE_IO_POSIX_CALL_H_

#include <cerrno>

namespace tidemark::storage {

// Calls until the answer is not -1 with EINTR; errno is the last call's. Not for close(2), which must not be called
// twice, nor for fsync(2) and fdatasync(2), of which only the first answer counts.
template <typename Call>
auto RetryOnEintr(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_POSIX_CALL_H_
