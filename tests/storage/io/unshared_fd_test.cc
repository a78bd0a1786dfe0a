#include "storage/io/unshared_fd.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

class UnsharedFdTest : public testing::Test {
 protected:
  UnsharedFdTest() { std::ofstream(path_) << "text"; }

  UnsharedFd Open(int flags) const { return UnsharedFd(UniqueFd(open(path_.c_str(), flags | O_CLOEXEC))); }

  // Whether the open file of `fd` has the lock, or may have it.
  static bool TryLock(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0; }

  const TestDirectory directory_;
  const std::string path_ = directory_ / "file";
};

TEST_F(UnsharedFdTest, OwnsItsDescriptor) {
  int raw = -1;
  {
    UnsharedFd fd = Open(O_RDWR);
    raw = fd.get();
    EXPECT_TRUE(fd.valid());
    UnsharedFd moved(std::move(fd));
    EXPECT_FALSE(fd.valid());  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(moved.get(), raw);
    UnsharedFd other = Open(O_RDWR);
    const int old = other.get();
    other = std::move(moved);
    EXPECT_EQ(other.get(), raw);
    EXPECT_EQ(fcntl(old, F_GETFD), -1) << "closed when another one took its place";
  }
  EXPECT_EQ(fcntl(raw, F_GETFD), -1) << "closed with the object";
  UnsharedFd fd = Open(O_RDWR);
  const UniqueFd released(fd.Release());
  EXPECT_FALSE(fd.valid());
  EXPECT_NE(fcntl(released.get(), F_GETFD), -1);
  EXPECT_FALSE(UnsharedFd(UniqueFd()).valid());
}

TEST_F(UnsharedFdTest, IsClosedInAForkedChildUnlessItIsForReadingAlone) {
  const UnsharedFd writer = Open(O_RDWR);
  const UnsharedFd reader = Open(O_RDONLY);
  ASSERT_EQ(flock(reader.get(), LOCK_SH), 0);
  EXPECT_EQ(InChild([&]() -> std::string {
              char text[5] = "";
              if (writer.valid() || !reader.valid()) return "the wrong one is closed";
              if (pread(reader.get(), text, 4, 0) != 4) return "cannot be read";
              if ((fcntl(reader.get(), F_GETFD) & FD_CLOEXEC) == 0) return "stays open in a program";
              return TryLock(reader.get()) ? "is locked still" : text;
            }),
            "text");
  EXPECT_TRUE(writer.valid());
  EXPECT_TRUE(TryLock(reader.get())) << "the child's open file is another";
}

TEST_F(UnsharedFdTest, IsClosedInAForkedChildWhereItCannotBeOpenedAnew) {
  const UnsharedFd reader = Open(O_RDONLY);
  EXPECT_EQ(InChild([&]() -> std::string {
              if (!DenySystemCalls({SYS_openat}, EMFILE)) return "SKIP";
              return InChild([&] { return reader.valid() ? "valid" : "closed"; });
            }),
            "closed");
}

// The fork would wait for a writer.
TEST_F(UnsharedFdTest, DoesNotWaitForTheWriterOfAFifoAndKeepsTheFlags) {
  const std::string path = directory_ / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  UniqueFd first(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(first.valid());
  ASSERT_EQ(fcntl(first.get(), F_SETFL, 0), 0);
  const UnsharedFd fifo(std::move(first));
  const UnsharedFd quick = Open(O_RDONLY | O_NONBLOCK | O_NOATIME);
  EXPECT_EQ(InChild([&]() -> std::string {
              if (!fifo.valid() || !quick.valid()) return "closed";
              if ((fcntl(fifo.get(), F_GETFL) & O_NONBLOCK) != 0) return "the fifo does not wait any more";
              constexpr int kFlags = O_NONBLOCK | O_NOATIME;
              return (fcntl(quick.get(), F_GETFL) & kFlags) == kFlags ? "open" : "the flags are others";
            }),
            "open");
}

TEST_F(UnsharedFdTest, IsOpenedAgainWhereTheProcessWasForkedMeanwhile) {
  std::vector<int> opened;
  absl::StatusOr<UnsharedFd> fd = UnsharedFd::Take([&]() -> absl::StatusOr<UniqueFd> {
    UniqueFd fd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    opened.push_back(fd.get());
    if (opened.size() == 1) InChild([] { return ""; });
    return fd;
  });
  ASSERT_THAT(fd, IsOk());
  EXPECT_EQ(opened.size(), 2u);
  EXPECT_EQ(fd->get(), opened.back());
  EXPECT_THAT(UnsharedFd::Take([]() -> absl::StatusOr<UniqueFd> { return absl::InternalError("no"); }),
              StatusIs(absl::StatusCode::kInternal, "no"));
}

TEST_F(UnsharedFdTest, ForksAndOpensFromManyThreads) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        const auto fd = UnsharedFd::Take(
            [&]() -> absl::StatusOr<UniqueFd> { return UniqueFd(open(path_.c_str(), O_RDWR | O_CLOEXEC)); });
        EXPECT_TRUE(fd->valid());
      }
    });
  }
  for (int i = 0; i < 50; ++i) EXPECT_EQ(InChildBesideThreads([] { return "child"; }), "child");
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tidemark::storage
