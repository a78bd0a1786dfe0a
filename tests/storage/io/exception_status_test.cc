#include "storage/io/exception_status.h"

#include <new>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

template <typename Exception>
absl::Status StatusOf(const Exception& exception) {
  try {
    throw exception;
  } catch (...) {
    return ExceptionStatus("Options::function");
  }
}

TEST(ExceptionStatus, NamesTheSubjectAndSaysWhatWasThrown) {
  EXPECT_THAT(StatusOf(std::runtime_error("no more")),
              StatusIs(absl::StatusCode::kInternal, "Options::function threw: no more"));
  EXPECT_THAT(StatusOf(7),
              StatusIs(absl::StatusCode::kInternal, "Options::function threw something other than a std::exception"));
}

TEST(ExceptionStatus, SaysThatThereIsNoMemory) {
  EXPECT_THAT(StatusOf(std::bad_alloc()),
              StatusIs(absl::StatusCode::kResourceExhausted, "Options::function: the system has no memory"));
  try {
    throw std::bad_alloc();
  } catch (...) {
    EXPECT_THAT(ExceptionStatus("read", "a/file"),
                StatusIs(absl::StatusCode::kResourceExhausted, "read a/file: the system has no memory"));
  }
}

}  // namespace
}  // namespace tidemark::storage
