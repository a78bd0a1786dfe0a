#include "storage/io/unique_fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) != -1; }
int OpenAny() { return open("/", O_RDONLY | O_CLOEXEC); }

TEST(UniqueFd, ClosesWhenDestroyed) {
  const int raw = OpenAny();
  {
    UniqueFd fd(raw);
    EXPECT_TRUE(fd.valid());
    EXPECT_EQ(fd.get(), raw);
  }
  EXPECT_FALSE(IsOpen(raw));
}

TEST(UniqueFd, LeavesWhatWasReleasedOpen) {
  const int raw = OpenAny();
  {
    UniqueFd fd(raw);
    EXPECT_EQ(fd.Release(), raw);
    EXPECT_FALSE(fd.valid());
  }
  EXPECT_TRUE(IsOpen(raw));
  close(raw);
}

TEST(UniqueFd, ClosesItsOldOneWhenAnotherIsMovedIn) {
  const int old = OpenAny();
  const int raw = OpenAny();
  UniqueFd fd(old);
  UniqueFd other(raw);
  fd = std::move(other);
  EXPECT_FALSE(IsOpen(old));
  EXPECT_EQ(fd.get(), raw);
  EXPECT_TRUE(IsOpen(raw));
}

}  // namespace
}  // namespace tidemark::storage
