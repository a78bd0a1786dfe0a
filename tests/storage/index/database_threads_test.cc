// RocksDB where none of its threads can be started, as where `ulimit -v` or `-u` leaves no room for one. It throws
// then.

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/index/database.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

static bool refuse_threads = false;

// In the place of the C library's, for all libraries of the program. AddressSanitizer has its own.
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                              void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static Create* const create = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  return refuse_threads ? EAGAIN : create(thread, attributes, function, argument);
}
#endif

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

// RocksDB's threads belong to the process, so that one test has all there is.
TEST(DatabaseThreads, AreRefusedWithAnErrorAndCanBeStartedLater) {
  if (kAddressSanitizer) GTEST_SKIP() << "the sanitizer starts the threads itself";
  const TestDirectory directory;
  const std::string path = directory / "index";
  const auto refused = StatusIs(StatusCode::kResourceExhausted, AllOf(HasSubstr(path), HasSubstr("thread")));
  refuse_threads = true;
  EXPECT_THAT(Database::Create(PosixFileSystem(), path), refused);
  refuse_threads = false;
  EXPECT_THAT(Database::Create(PosixFileSystem(), path), IsOk());
  EXPECT_THAT(Database::Open(PosixFileSystem(), path), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
