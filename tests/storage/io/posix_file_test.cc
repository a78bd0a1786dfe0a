#include "storage/io/posix_file.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

class PosixFileTest : public testing::Test {
 protected:
  std::unique_ptr<File> Create(const std::string& name, bool direct = false) {
    auto file = PosixFileSystem().Create(directory_ / name, direct);
    EXPECT_THAT(file, IsOk());
    return *std::move(file);
  }

  const TestDirectory directory_;
  const std::string path_ = directory_ / "x";
};

TEST_F(PosixFileTest, AllocateReservesBlocksAndSetsTheSize) {
  auto file = Create("x");
  const absl::Status allocated = file->Allocate(1 << 20);
  if (absl::IsUnimplemented(allocated)) GTEST_SKIP() << allocated;
  ASSERT_THAT(allocated, IsOk());
  EXPECT_EQ(*file->Size(), 1u << 20);
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, 1 << 20);
  ASSERT_THAT(file->Truncate(100), IsOk());
  EXPECT_EQ(*file->Size(), 100u);
}

// A file system without fallocate, and no writing in its place.
TEST_F(PosixFileTest, AllocateIsUnimplementedWhereTheFileSystemCannot) {
  auto file = Create("x");
  const std::string answer = InChild([&]() -> std::string {
    if (!DenySystemCalls({SYS_fallocate}, EOPNOTSUPP)) return "SKIP";
    return file->Allocate(1 << 20).ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  EXPECT_THAT(answer, StartsWith("UNIMPLEMENTED: allocate 1048576 bytes for " + path_));
  EXPECT_EQ(*file->Size(), 0u);
}

TEST_F(PosixFileTest, ReportsWhatTheSystemSays) {
  struct Case {
    const char* expected;
    std::initializer_list<int> calls;
    absl::Status (*body)(File&);
  };
  const Case cases[] = {
      {"INTERNAL: sync ", {SYS_fdatasync}, [](File& file) { return file.SyncData(); }},
      {"INTERNAL: close ", {SYS_close}, [](File& file) { return file.Close(); }},
      {"INTERNAL: stat ", {SYS_fstat, SYS_newfstatat}, [](File& file) { return file.Size().status(); }},
      {"INTERNAL: truncate to 7 bytes ", {SYS_ftruncate}, [](File& file) { return file.Truncate(7); }},
  };
  for (const Case& c : cases) {
    std::filesystem::remove(path_);
    const std::string answer = InChild([&]() -> std::string {
      const auto file = Create("x");
      if (!DenySystemCalls(c.calls, EIO)) return "SKIP";
      return c.body(*file).ToString();
    });
    if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
    EXPECT_EQ(answer, c.expected + path_ + ": Input/output error (EIO)");
  }
}

// The kernel takes what fits under the limit and only then refuses: a short write, then EFBIG.
TEST_F(PosixFileTest, WriteAcrossTheSizeLimitIsResourceExhausted) {
  const std::string answer = InChild([&] {
    const auto file = Create("x");
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::vector<std::byte> data(10000);
    return file->WriteAt(0, data).ToString();
  });
  EXPECT_EQ(answer, "RESOURCE_EXHAUSTED: write 10000 bytes at 0 to " + path_ + ": File too large (EFBIG)");
  EXPECT_EQ(std::filesystem::file_size(path_), 4096u);
}

TEST_F(PosixFileTest, FullFileSystemIsResourceExhausted) {
  const std::string mount_point = directory_ / "full";
  std::filesystem::create_directory(mount_point);
  const std::string answer = InChild([&]() -> std::string {
    if (!EnterMountNamespace()) return "SKIP";
    if (mount("none", mount_point.c_str(), "tmpfs", 0, "size=64k") != 0) return "SKIP";
    auto file = PosixFileSystem().Create(mount_point + "/x", false);
    if (!file.ok()) return file.status().ToString();
    std::vector<std::byte> data(1 << 20);
    return (*file)->WriteAt(0, data).ToString() + "\n" + (*file)->Allocate(1 << 20).ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not mount a small file system";
  EXPECT_EQ(answer, "RESOURCE_EXHAUSTED: write 1048576 bytes at 0 to " + mount_point +
                        "/x: No space left on device (ENOSPC)\nRESOURCE_EXHAUSTED: allocate 1048576 bytes for " +
                        mount_point + "/x: No space left on device (ENOSPC)");
}

TEST_F(PosixFileTest, FallsBackToBufferedWhereTheFlagIsRefused) {
  auto file = PosixFileSystem().OpenForRead("/proc/" + std::to_string(getpid()) + "/status", /*direct=*/true);
  ASSERT_THAT(file, IsOk());
  EXPECT_FALSE((*file)->direct());
  char name[5];
  EXPECT_THAT((*file)->ReadAt(1, std::as_writable_bytes(std::span(name))), IsOk());
  EXPECT_EQ(std::string_view(name, 5), "ame:\t");
}

// An overlay takes O_DIRECT whatever lies under it, and refuses the transfers that ramfs cannot do.
TEST_F(PosixFileTest, FallsBackToBufferedWhereTheFirstTransferIsRefused) {
  const std::string base = directory_ / "ram";
  std::filesystem::create_directory(base);
  const std::string answer = InChild([&]() -> std::string {
    if (!EnterMountNamespace()) return "SKIP";
    if (mount("none", base.c_str(), "ramfs", 0, nullptr) != 0) return "SKIP";
    for (const char* name : {"/a", "/b", "/o"}) std::filesystem::create_directory(base + name);
    std::ofstream(base + "/a/x") << "hello";
    const std::string layers = "lowerdir=" + base + "/a:" + base + "/b";
    if (mount("overlay", (base + "/o").c_str(), "overlay", 0, layers.c_str()) != 0) return "SKIP";
    auto file = PosixFileSystem().OpenForRead(base + "/o/x", /*direct=*/true);
    if (!file.ok()) return file.status().ToString();
    std::string contents(5, ' ');
    const absl::Status read = (*file)->ReadAt(0, std::as_writable_bytes(std::span(contents)));
    return ((*file)->direct() ? "direct " : "buffered ") + read.ToString() + " " + contents;
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not mount an overlay";
  EXPECT_EQ(answer, "buffered OK hello");
}

TEST_F(PosixFileTest, ReportsWhenTheFlagsCannotBeSet) {
  Create("x");
  for (const bool direct : {false, true}) {
    const std::string answer = InChild([&]() -> std::string {
      if (!DenySystemCalls({SYS_fcntl}, EPERM)) return "SKIP";
      return PosixFileSystem().OpenForRead(path_, direct).status().ToString();
    });
    if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
    EXPECT_EQ(answer, std::string("PERMISSION_DENIED: set ") + (direct ? "O_DIRECT on " : "status flags of ") + path_ +
                          ": Operation not permitted (EPERM)");
  }
}

TEST_F(PosixFileTest, AdoptRefusesADirectory) {
  UnsharedFd fd(UniqueFd(open(directory_.path().c_str(), O_RDONLY | O_CLOEXEC)));
  EXPECT_THAT(PosixFile::Adopt(std::move(fd), "d", false),
              StatusIs(StatusCode::kFailedPrecondition, "open d: a directory, not a regular file"));
}

}  // namespace
}  // namespace tidemark::storage
