// Memory that nobody can free any more, as AddressSanitizer sees it before the end of the process.

#ifndef TIDEMARK_TESTS_STORAGE_IO_LEAKS_H_
#define TIDEMARK_TESTS_STORAGE_IO_LEAKS_H_

#include "tests/storage/io/sanitizers.h"

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#endif

namespace tidemark::storage {

// Whether any has been lost since the process began; stderr says by whom it was allocated. False in other builds.
inline bool HasLeaks() {
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
  return __lsan_do_recoverable_leak_check() != 0;
#else
  return false;
#endif
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_LEAKS_H_
