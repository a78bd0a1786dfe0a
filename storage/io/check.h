// Aborts for bugs of our own; never for bytes that were read, or for what a system call may answer.

#ifndef TIDEMARK_STORAGE_IO_CHECK_H_
#define TIDEMARK_STORAGE_IO_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace tidemark::storage {

// Ends the process, with `what` on stderr, unless `holds`.
inline void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tidemark: internal error: %s\n", what);
  std::abort();
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_CHECK_H_
