#include "storage/io/posix_call.h"

#include <cerrno>

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

TEST(RetryOnEintr, CallsAgainUntilTheAnswerIsAnother) {
  int calls = 0;
  const int result = RetryOnEintr([&] {
    errno = EINTR;
    return ++calls < 3 ? -1 : 7;
  });
  EXPECT_EQ(result, 7);
  EXPECT_EQ(calls, 3);
}

TEST(RetryOnEintr, HandsBackAnyOtherError) {
  int calls = 0;
  const int result = RetryOnEintr([&] {
    ++calls;
    errno = EIO;
    return -1;
  });
  EXPECT_EQ(result, -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tidemark::storage
