// PosixFileSystem() under every single failure of a system call that it makes: the call is made again where it was only
// interrupted, or its errno is reported, nothing has changed and no descriptor stays open.

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/errno_status.h"
#include "storage/io/file_system.h"
#include "storage/io/queues/transfer.h"
#include "tests/storage/io/leaks.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/system_calls.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;

constexpr int kErrnos[] = {EINTR, EAGAIN, EIO,    ENOSPC, EDQUOT, EFBIG,     EACCES, EPERM,
                           EROFS, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT, ENOLCK, EOPNOTSUPP};

// Those that are made again after EINTR. Not those that sync or close, of which only the first answer counts, nor those
// on names, which no local file system interrupts.
const std::set<std::string> kMadeAgain = {"openat", "openat2", "pread", "pwrite", "fallocate", "ftruncate", "flock"};

// Whether the operation is done though the nth call of it fails.
bool IsNotNeeded(const std::string& operation, const std::vector<std::string>& calls, size_t n, int error) {
  const std::string& call = calls[n];
  const bool is_last = n + 1 == calls.size();
  const auto nth = calls.begin() + static_cast<ptrdiff_t>(n);
  // Then the path is followed name by name (link_free_path.cc).
  if (call == "openat2" && (error == EAGAIN || error == EPERM)) return true;
  // Of a file that was written only File::Close answers for this.
  if (call == "close") return operation != "close" || !is_last;
  // Readers keep writers off where that can be had; directly is one way to read.
  if (call == "flock" && (operation.starts_with("read") || operation == "lock")) return true;
  // The second one unlocks what is closed next, which does it as well.
  if (call == "flock") return std::find(calls.begin(), nth, call) != nth;
  return call == "pread" && operation.ends_with("directly");
}

class SystemCallFaultsTest : public testing::Test {
 protected:
  struct Operation {
    std::string name;
    std::string call;  // one that it makes: a call that is not wrapped would not be seen to fail
    std::function<absl::Status()> run;
  };

  // A directory with a folder and a file of 64 KiB.
  void Prepare() {
    for (const auto& entry : fs::directory_iterator(directory_.path())) fs::remove_all(entry.path());
    fs::create_directory(folder_);
    auto file = files_.Create(file_, /*direct=*/false);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->WriteAt(0, contents_), IsOk());
  }

  std::set<std::string> Names() {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path())) names.insert(entry.path().filename());
    return names;
  }

  static size_t OpenDescriptors() {
    const fs::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  absl::Status ReadsBack(bool direct) {
    auto file = files_.OpenForRead(file_, direct);
    if (!file.ok()) return file.status();
    AlignedBytes read;
    absl::Status status = (*file)->ReadAt(0, read.bytes);
    if (status.ok()) {
      EXPECT_TRUE(std::equal(contents_.begin(), contents_.end(), read.bytes));
    }
    return status;
  }

  absl::Status WritesAndReadsBack(bool direct) {
    auto file = files_.OpenForRewrite(file_, direct);
    if (!file.ok()) return file.status();
    AlignedBytes written;
    std::copy(contents_.rbegin(), contents_.rend(), written.bytes);
    if (absl::Status status = (*file)->WriteAt(0, written.bytes); !status.ok()) return status;
    AlignedBytes read;
    absl::Status status = (*file)->ReadAt(0, read.bytes);
    if (status.ok()) {
      EXPECT_EQ(std::memcmp(read.bytes, written.bytes, sizeof(read.bytes)), 0);
    }
    return status;
  }

  std::vector<Operation> Operations();

  static constexpr size_t kFileBytes = 64 << 10;
  struct AlignedBytes {
    alignas(kDirectAlignment) std::byte bytes[kFileBytes];
  };

  FileSystem& files_ = PosixFileSystem();
  const TestDirectory directory_;
  const std::string folder_ = directory_ / "folder";
  const std::string file_ = directory_ / "file";
  const std::string new_ = directory_ / "new";
  std::vector<std::byte> contents_ = [] {
    std::vector<std::byte> bytes(kFileBytes);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 9));
    return bytes;
  }();
};

std::vector<SystemCallFaultsTest::Operation> SystemCallFaultsTest::Operations() {
  const auto on_file = [this](const std::function<absl::Status(File&)>& call) {
    return [this, call]() -> absl::Status {
      auto file = files_.OpenForRewrite(file_, /*direct=*/false);
      return file.ok() ? call(**file) : file.status();
    };
  };
  return {
      {"create directory", "mkdirat", [this] { return files_.CreateDirectory(new_); }},
      {"list", "readdir", [this] { return files_.ListDirectory(directory_.path()).status(); }},
      {"list without types", "fstatat",
       [this] {
         const ListingWithoutTypes without_types;
         return files_.ListDirectory(directory_.path()).status();
       }},
      {"type", "fstatat", [this] { return files_.TypeOf(file_).status(); }},
      {"read", "openat2", [this] { return ReadsBack(/*direct=*/false); }},
      {"read directly", "pread", [this] { return ReadsBack(/*direct=*/true); }},
      {"write", "pwrite", [this] { return WritesAndReadsBack(/*direct=*/false); }},
      {"write directly", "pwrite", [this] { return WritesAndReadsBack(/*direct=*/true); }},
      {"create", "openat", [this] { return files_.Create(new_, /*direct=*/false).status(); }},
      {"create for all", "openat", [this] { return files_.CreateReadable(new_).status(); }},
      {"rename", "renameat", [this] { return files_.Rename(file_, new_); }},
      {"rename to new", "renameat2", [this] { return files_.RenameToNew(file_, new_); }},
      {"link", "linkat", [this] { return files_.HardLink(file_, new_); }},
      {"remove", "unlinkat", [this] { return files_.RemoveFile(file_); }},
      {"remove directory", "unlinkat", [this] { return files_.RemoveDirectory(folder_); }},
      {"sync directory", "fsync", [this] { return files_.SyncDirectory(directory_.path()); }},
      {"sync open directory", "fsync",
       [this] {
         auto directory = files_.OpenDirectory(directory_.path());
         return directory.ok() ? (*directory)->Sync() : directory.status();
       }},
      {"lock", "flock",
       [this] {
         auto lock = files_.TryLock(new_);
         return lock.ok() ? (*lock)->WriteNote("a note") : lock.status();
       }},
      {"read note", "pread", [this] { return files_.ReadNote(file_, kFileBytes).status(); }},
      {"size", "fstat", on_file([](File& file) { return file.Size().status(); })},
      {"allocate", "fallocate", on_file([](File& file) { return file.Allocate(2 * kFileBytes); })},
      {"truncate", "ftruncate", on_file([](File& file) { return file.Truncate(7); })},
      {"sync", "fdatasync", on_file([](File& file) { return file.SyncData(); })},
      {"close", "close", on_file([](File& file) { return file.Close(); })},
  };
}

TEST_F(SystemCallFaultsTest, ListsWhereTheFileSystemTellsNoTypes) {
  Prepare();
  fs::create_symlink("folder", directory_ / "link");
  const auto listed = files_.ListDirectory(directory_.path());
  const ListingWithoutTypes without_types;
  const auto listed_without = files_.ListDirectory(directory_.path());
  ASSERT_THAT(listed, IsOk());
  ASSERT_THAT(listed_without, IsOk());
  EXPECT_EQ(listed->size(), 3);
  EXPECT_TRUE(std::ranges::equal(*listed, *listed_without, [](const DirectoryEntry& a, const DirectoryEntry& b) {
    return a.name == b.name && a.type == b.type;
  }));
}

TEST_F(SystemCallFaultsTest, AListingDoesNotMindEntriesThatVanish) {
  Prepare();
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      std::ofstream(folder_ + "/x") << "";
      fs::remove(folder_ + "/x");
    }
  });
  const ListingWithoutTypes without_types;
  for (int i = 0; i < 5000; ++i) ASSERT_THAT(files_.ListDirectory(folder_), IsOk());
  stop = true;
  other.join();
}

// A sync that answers 0 is not believed of a file system that is down (storage/io/sync.h).
TEST_F(SystemCallFaultsTest, ASyncAsksAfterwardsWhetherTheFileSystemIsUp) {
  size_t syncs = 0;
  for (const Operation& operation : Operations()) {
    if (operation.call != "fsync" && operation.call != "fdatasync") continue;
    SCOPED_TRACE(operation.name);
    Prepare();
    std::vector<std::string> calls;
    {
      const SystemCallFault count;
      ASSERT_THAT(operation.run(), IsOk());
      calls = count.calls();
    }
    const size_t asks = static_cast<size_t>(std::ranges::find(calls, operation.call) - calls.begin()) + 1;
    ASSERT_LT(asks, calls.size());
    ASSERT_EQ(calls[asks], "fstat");
    const SystemCallFault fault(asks, EIO);
    EXPECT_THAT(operation.run(), StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("sync")));
    ++syncs;
  }
  EXPECT_EQ(syncs, 3);
}

TEST_F(SystemCallFaultsTest, EachIsMadeAgainOrReported) {
  size_t sites = 0;
  size_t runs = 0;
  size_t reported = 0;
  for (const Operation& operation : Operations()) {
    Prepare();
    std::vector<std::string> calls;
    {
      const SystemCallFault count;
      ASSERT_THAT(operation.run(), IsOk()) << operation.name;
      calls = count.calls();
    }
    EXPECT_THAT(calls, testing::Contains(operation.call)) << operation.name;
    sites += calls.size();
    for (size_t n = 0; n < calls.size(); ++n) {
      for (const int error : kErrnos) {
        SCOPED_TRACE(fmt::format("{}: call {}, {}, gets {}", operation.name, n, calls[n], strerrorname_np(error)));
        Prepare();
        const std::set<std::string> names = Names();
        const size_t descriptors = OpenDescriptors();
        absl::Status status;
        {
          const SystemCallFault fault(n, error);
          status = operation.run();
          ASSERT_EQ(fault.failed(), calls[n]);
        }
        ++runs;
        EXPECT_EQ(OpenDescriptors(), descriptors);
        const bool made_again = (error == EINTR && kMadeAgain.contains(calls[n])) ||
                                (error == EAGAIN && (calls[n] == "pread" || calls[n] == "pwrite") &&
                                 operation.name != "lock" && operation.name != "read note");
        if (made_again) {
          EXPECT_THAT(status, IsOk());
        }
        if (status.ok()) {
          EXPECT_TRUE(made_again || IsNotNeeded(operation.name, calls, n, error)) << "its failure is not told";
          continue;
        }
        ++reported;
        const std::string_view message(status.message().data(), status.message().size());
        EXPECT_THAT(std::string(message), testing::HasSubstr(directory_.path()));
        if (calls[n] == "flock") continue;  // who holds it, or that it could not be found out
        EXPECT_EQ(status.code(), ErrnoStatus(error, "", "").code()) << status;
        EXPECT_THAT(std::string(message), testing::EndsWith(fmt::format("({})", strerrorname_np(error))));
        // What had no name has none, and what had one has it, but for a file that was created and could not be used.
        if (!operation.name.starts_with("create") && operation.name != "lock") {
          EXPECT_EQ(Names(), names);
        }
      }
    }
  }
  EXPECT_GT(reported, runs / 2);
  EXPECT_FALSE(HasLeaks());
  std::printf("system calls: %zu sites, %zu sites x errnos, %zu of them reported a failure\n", sites, runs, reported);
}

// As on NFS, which cannot rename without replacing.
TEST_F(SystemCallFaultsTest, RenameToNewLinksWhereTheFileSystemCannot) {
  for (const int error : {EINVAL, ENOSYS}) {
    Prepare();
    {
      const SystemCallFault fault("renameat2", error, 1);
      ASSERT_THAT(files_.RenameToNew(file_, new_), IsOk());
      EXPECT_EQ(fault.failed(), "renameat2");
    }
    EXPECT_EQ(Names(), (std::set<std::string>{"folder", "new"}));
    Prepare();
    ASSERT_THAT(files_.Create(new_, /*direct=*/false), IsOk());
    const SystemCallFault fault("renameat2", error, 1);
    EXPECT_THAT(files_.RenameToNew(file_, new_), StatusIs(absl::StatusCode::kAlreadyExists, testing::HasSubstr(new_)));
    EXPECT_EQ(Names(), (std::set<std::string>{"file", "folder", "new"}));
  }
}

// Interrupted again and again, and given a few bytes at a time.
TEST_F(SystemCallFaultsTest, TransfersGoOnWhereTheyStoodAfterShortOnes) {
  for (const size_t bytes : {size_t{1000}, size_t{4096}, size_t{5000}}) {
    Prepare();
    SystemCallFault fault;
    fault.Shorten(bytes);
    EXPECT_THAT(ReadsBack(/*direct=*/false), IsOk());
    EXPECT_THAT(WritesAndReadsBack(/*direct=*/false), IsOk());
    const auto lock = files_.TryLock(new_);
    ASSERT_THAT(lock, IsOk());
    fault.Shorten(3);
    EXPECT_THAT((*lock)->WriteNote("in three parts"), IsOk());
    EXPECT_EQ(*files_.ReadNote(new_, 100), "in three parts");
  }
  Prepare();
  for (const char* call : {"pread", "pwrite"}) {
    for (const int error : {EINTR, EAGAIN}) {
      const SystemCallFault fault(call, error, 100);
      EXPECT_THAT(WritesAndReadsBack(/*direct=*/false), IsOk());
    }
  }
}

// As a reader of the lock file has it, for as long as the file is open, or whoever asks whether somebody holds the
// lock.
TEST_F(SystemCallFaultsTest, ALockThatIsOnlySharedForAMomentIsWaitedFor) {
  Prepare();
  {
    const SystemCallFault fault("flock", EWOULDBLOCK, 1);
    EXPECT_THAT(files_.TryLock(new_), IsOk());
    EXPECT_EQ(std::count(fault.calls().begin(), fault.calls().end(), "flock"), 5) << "shared, and let go, and had";
  }
  // That it can be shared neither means that somebody holds it.
  const SystemCallFault fault("flock", EWOULDBLOCK, 2);
  EXPECT_THAT(files_.TryLock(new_), StatusIs(absl::StatusCode::kUnavailable, testing::HasSubstr("held by")));
}

TEST_F(SystemCallFaultsTest, ADirectTransferGoesOnFromTheLastAlignedPlaceAfterAShortOne) {
  Prepare();
  if (auto file = files_.OpenForRead(file_, /*direct=*/true); !file.ok() || !(*file)->direct()) {
    GTEST_SKIP() << "no direct transfers here";
  }
  SystemCallFault fault;
  fault.Shorten(4096 + 512);
  EXPECT_THAT(ReadsBack(/*direct=*/true), IsOk());
  EXPECT_THAT(WritesAndReadsBack(/*direct=*/true), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
