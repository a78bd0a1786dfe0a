#include "storage/io/posix_lock.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <filesystem>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/check.h"
#include "storage/io/file_system.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class PosixLockTest : public testing::Test {
 protected:
  const TestDirectory directory_;
  const std::string path_ = directory_ / "LOCK";
};

TEST_F(PosixLockTest, CreatesTheFileForItsOwnerAlone) {
  auto lock = PosixLock::TryLock(path_);
  ASSERT_THAT(lock, IsOk());
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(PosixLockTest, ConflictsWithAnotherProcessAndNamesTheHolder) {
  auto lock = PosixLock::TryLock(path_);
  ASSERT_THAT(lock, IsOk());
  ASSERT_THAT((*lock)->WriteNote("the parent"), IsOk());
  EXPECT_EQ(InChild([&] { return PosixLock::TryLock(path_).status().ToString(); }),
            "UNAVAILABLE: lock " + path_ + ": held by the parent");
}

TEST_F(PosixLockTest, IsFreeAfterTheHoldersDeath) {
  EXPECT_EQ(InChild([&]() -> std::string {
              auto lock = PosixLock::TryLock(path_);
              if (!lock.ok()) return lock.status().ToString();
              lock->release();
              return "locked";
            }),
            "locked");
  EXPECT_THAT(PosixLock::TryLock(path_), IsOk());
}

TEST_F(PosixLockTest, StaysWithTheParentWhenAForkedChildDestroysItsCopy) {
  auto lock = PosixLock::TryLock(path_);
  ASSERT_THAT(lock, IsOk());
  EXPECT_EQ(InChild([&] {
              lock->reset();
              return "destroyed";
            }),
            "destroyed");
  EXPECT_THAT(PosixLock::TryLock(path_), StatusIs(StatusCode::kUnavailable, HasSubstr("held by")));
}

// A forked child that does nothing, as long as this lives.
class IdleChild {
 public:
  IdleChild() {
    Check(pipe(ends_) == 0, "a pipe could not be made");
    child_ = fork();
    Check(child_ >= 0, "a child could not be forked");
    if (child_ != 0) return;
    close(ends_[1]);
    char byte;
    _exit(read(ends_[0], &byte, 1) == 0 ? 0 : 1);  // until the parent closes its end
  }
  ~IdleChild() {
    close(ends_[1]);
    close(ends_[0]);
    waitpid(child_, nullptr, 0);
  }

 private:
  int ends_[2];
  pid_t child_ = 0;
};

TEST_F(PosixLockTest, IsFreeAfterDestructionThoughAForkedChildLives) {
  auto lock = PosixLock::TryLock(path_);
  ASSERT_THAT(lock, IsOk());
  const IdleChild child;
  lock->reset();
  EXPECT_THAT(PosixLock::TryLock(path_), IsOk());
}

// The holder is killed and so releases nothing. It has forked a worker that loads data, which lives on.
TEST_F(PosixLockTest, IsFreeAfterTheHolderIsKilledThoughAChildOfItLives) {
  ASSERT_THAT(PosixFileSystem().Create(directory_ / "shard", /*direct=*/false), IsOk());
  int ready[2], end[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(end), 0);
  const pid_t holder = fork();
  ASSERT_GE(holder, 0);
  if (holder == 0) {
    close(end[1]);
    const auto lock = PosixLock::TryLock(path_);
    const auto shard = PosixFileSystem().OpenForRewrite(directory_ / "shard", /*direct=*/false);
    if (!lock.ok() || !shard.ok()) _exit(1);
    char byte = 'r';
    const bool worker = fork() == 0;
    if (worker && write(ready[1], &byte, 1) == 1) _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
    for (;;) pause();
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1) << "the worker lives";
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_THAT(PosixLock::TryLock(path_), IsOk());
  EXPECT_THAT(PosixFileSystem().OpenForRewrite(directory_ / "shard", /*direct=*/false), IsOk());
  for (const int fd : {ready[0], end[0], end[1]}) close(fd);  // lets the worker end
}

// Such as a worker that loads data: else nobody could read a shard that was written into a recycled file, and a file
// that was read could not be recycled.
TEST_F(PosixLockTest, OfAFileIsFreeOnceThatIsClosedThoughAForkedChildLives) {
  FileSystem& files = PosixFileSystem();
  ASSERT_THAT(files.Create(path_, /*direct=*/false), IsOk());
  for (const bool destroyed : {false, true}) {
    SCOPED_TRACE(destroyed);
    auto writer = files.OpenForRewrite(path_, /*direct=*/false);
    ASSERT_THAT(writer, IsOk());
    const IdleChild writers_child;
    EXPECT_THAT(files.OpenForRead(path_, /*direct=*/false),
                StatusIs(StatusCode::kNotFound, HasSubstr("being overwritten")));
    destroyed ? writer->reset() : (*writer)->Close().IgnoreError();
    auto reader = files.OpenForRead(path_, /*direct=*/false);
    ASSERT_THAT(reader, IsOk());
    const IdleChild readers_child;
    destroyed ? reader->reset() : (*reader)->Close().IgnoreError();
    EXPECT_THAT(files.OpenForRewrite(path_, /*direct=*/false), IsOk());
  }
}

TEST_F(PosixLockTest, OfAFileStaysWithTheParentWhenAForkedChildDestroysItsCopy) {
  FileSystem& files = PosixFileSystem();
  ASSERT_THAT(files.Create(path_, /*direct=*/false), IsOk());
  auto writer = files.OpenForRewrite(path_, /*direct=*/false);
  ASSERT_THAT(writer, IsOk());
  EXPECT_EQ(InChild([&] {
              writer->reset();
              return "destroyed";
            }),
            "destroyed");
  EXPECT_THAT(files.OpenForRead(path_, /*direct=*/false),
              StatusIs(StatusCode::kNotFound, HasSubstr("being overwritten")));
}

TEST_F(PosixLockTest, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const UniqueFd opens(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ASSERT_GE(inotify_add_watch(opens.get(), path_.c_str(), IN_OPEN), 0);
  const auto refused = StatusIs(StatusCode::kFailedPrecondition, HasSubstr("a fifo, not a regular file"));
  EXPECT_THAT(PosixLock::TryLock(path_), refused);
  EXPECT_THAT(PosixLock::ReadNote(path_, 10), refused);
  char event[sizeof(inotify_event) + NAME_MAX + 1];
  EXPECT_EQ(read(opens.get(), event, sizeof(event)), -1) << "it was not even opened";
  EXPECT_THAT(PosixLock::TryLock(directory_.path()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("a directory, not a regular file")));
  std::filesystem::create_symlink("elsewhere", directory_ / "link");
  EXPECT_THAT(PosixLock::TryLock(directory_ / "link"), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("ELOOP")));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "elsewhere"));
}

TEST_F(PosixLockTest, ReportsWhatTheSystemSays) {
  const auto with_denied = [&](int call, int error) {
    return InChild([&]() -> std::string {
      auto held = PosixLock::TryLock(directory_ / "held");
      if (!DenySystemCalls({call}, error)) return "SKIP";
      if (call == SYS_pwrite64 || call == SYS_fdatasync) return (*held)->WriteNote("x").ToString();
      if (call == SYS_pread64) return PosixLock::ReadNote(directory_ / "held", 10).status().ToString();
      return PosixLock::TryLock(path_).status().ToString();
    });
  };
  const std::string lock = with_denied(SYS_flock, ENOLCK);
  if (lock == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  EXPECT_THAT(lock, HasSubstr("INTERNAL: lock " + path_));
  EXPECT_THAT(with_denied(SYS_ftruncate, EIO), HasSubstr("INTERNAL: erase note in " + path_));
  EXPECT_THAT(with_denied(SYS_fdatasync, EIO), HasSubstr("INTERNAL: sync note in"));
  EXPECT_THAT(with_denied(SYS_pread64, EIO), HasSubstr("INTERNAL: read note in"));
  EXPECT_THAT(with_denied(SYS_pwrite64, ENOSPC), HasSubstr("RESOURCE_EXHAUSTED: write note to"));
}

// A holder that removes the file before it lets go, as one does that clears up after the dead, must leave nobody with a
// lock on the file without a name.
TEST_F(PosixLockTest, IsAlwaysOnTheFileOfThatName) {
  std::atomic<bool> stop = false;
  std::thread remover([&] {
    while (!stop) {
      auto lock = PosixLock::TryLock(path_);
      if (lock.ok()) std::filesystem::remove(path_);
    }
  });
  int locked = 0;
  for (int i = 0; i < 20'000 || (locked == 0 && i < 10'000'000); ++i) {
    auto lock = PosixLock::TryLock(path_);
    if (!lock.ok()) {
      EXPECT_EQ(lock.status().code(), StatusCode::kUnavailable) << lock.status();
      continue;
    }
    ++locked;
    ASSERT_TRUE(std::filesystem::exists(path_)) << "after " << i << " rounds";
  }
  stop = true;
  remover.join();
  EXPECT_GT(locked, 0);
}

}  // namespace
}  // namespace tidemark::storage
