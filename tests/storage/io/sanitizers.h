// Which sanitizers the tests are compiled with, by gcc or by clang: both slow everything down, and each does some
// system calls' work itself.

#ifndef TIDEMARK_TESTS_STORAGE_IO_SANITIZERS_H_
#define TIDEMARK_TESTS_STORAGE_IO_SANITIZERS_H_

namespace tidemark::storage {

#ifndef __has_feature
#define __has_feature(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// Why a test that forks where there are threads already is skipped under ThreadSanitizer.
inline constexpr const char* kNoThreadsInChild =
    "under ThreadSanitizer a child of a process with threads may start none of its own";

// Why a test of the sandbox is skipped under AddressSanitizer, which comes with UBSan.
inline constexpr const char* kNoSandbox =
    "UBSan looks at an object by writing it to a pipe, which the sandbox does not let it have";

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_SANITIZERS_H_
