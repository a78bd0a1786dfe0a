#include "tests/storage/io/simulated_disk.h"

#include <set>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/crash_states.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

class SimulatedDiskTest : public testing::Test {
 protected:
  void Append(File& file, std::string_view bytes) {
    ASSERT_THAT(file.WriteAt(*file.Size(), std::as_bytes(std::span(bytes))), IsOk());
  }
  std::unique_ptr<File> Create(const std::string& path, std::string_view bytes = "") {
    auto file = disk_.Create(path, /*direct=*/false);
    EXPECT_THAT(file, IsOk());
    if (!bytes.empty()) Append(**file, bytes);
    return *std::move(file);
  }
  std::vector<std::string> Log() const {
    std::vector<std::string> lines;
    for (const DiskOperation& operation : disk_.log().operations) lines.push_back(operation.ToString());
    return lines;
  }

  SimulatedDisk disk_;
};

TEST_F(SimulatedDiskTest, LogsWhatIsDoneToIt) {
  ASSERT_THAT(disk_.CreateDirectory("/d"), IsOk());
  {
    auto file = Create("/d/x", "hello");
    ASSERT_THAT(file->SyncData(), IsOk());
    ASSERT_THAT(file->Allocate(100), IsOk());
    ASSERT_THAT(file->Truncate(7), IsOk());
  }
  disk_.Mark("written");
  ASSERT_THAT(disk_.Rename("/d/x", "/y"), IsOk());
  ASSERT_THAT(disk_.RemoveDirectory("/d"), IsOk());
  ASSERT_THAT(disk_.SyncDirectory("/"), IsOk());
  EXPECT_THAT(Log(), ElementsAre("create directory /d", "create /d/x", "write /d/x [0, 5)", "sync /d/x",
                                 "allocate 100 bytes for /d/x", "truncate /d/x to 7", "mark written",
                                 "rename /d/x to /y", "remove /d", "sync directory /"));
}

TEST_F(SimulatedDiskTest, BootsFromAnImageWithWhatIsOnIt) {
  ASSERT_THAT(disk_.CreateDirectory("/d"), IsOk());
  Create("/d/x", "hello");
  SimulatedDisk next(disk_.image());
  EXPECT_EQ(*ReadSmallFile(next, "/d/x", 10), "hello");
  EXPECT_THAT(next.image().Contents(), UnorderedElementsAre(Pair("/d/", ""), Pair("/d/x", "hello")));
  EXPECT_TRUE(next.log().operations.empty());
}

TEST_F(SimulatedDiskTest, WriteFileDurablyLeavesTheOldOrTheNewContentsInEveryState) {
  ASSERT_THAT(WriteFileDurably(disk_, "/x", "old"), IsOk());
  SimulatedDisk disk(disk_.image());
  const std::string contents(2000, 'n');
  ASSERT_THAT(WriteFileDurably(disk, "/x", contents), IsOk());
  disk.Mark("new");
  const DiskLog log = disk.log();
  std::unordered_set<uint64_t> seen;
  size_t news = 0;
  const size_t visited = ForEachCrash(log, {}, seen, [&](const Crash& crash, const DiskImage& image) {
    const std::string found = image.Contents()["/x"];
    EXPECT_TRUE(found == contents || found == "old") << crash.ToString(log);
    EXPECT_TRUE(found == contents || crash.prefix < log.operations.size()) << crash.ToString(log);
    news += found == contents ? 1 : 0;
    return true;
  });
  EXPECT_GE(visited, 8u);
  EXPECT_GT(news, 0u);
}

TEST_F(SimulatedDiskTest, WhatMakesNoDifferenceIsNotLogged) {
  auto file = Create("/x", "hello");
  ASSERT_THAT(file->SyncData(), IsOk());
  const size_t operations = Log().size();
  ASSERT_THAT(file->Truncate(5), IsOk());
  ASSERT_THAT(file->Allocate(3), IsOk());
  ASSERT_THAT(file->WriteAt(1, {}), IsOk());
  ASSERT_THAT(disk_.Rename("/x", "/x"), IsOk());
  EXPECT_EQ(Log().size(), operations);
  // The same does make one where the size may be lost.
  Append(*file, "!");
  ASSERT_THAT(file->Truncate(6), IsOk());
  EXPECT_THAT(Log().back(), "truncate /x to 6");
}

TEST_F(SimulatedDiskTest, SizeMakesADifferenceWhereASyncHasFailed) {
  auto file = Create("/x", "hello");
  disk_.FailSync("/x");
  ASSERT_THAT(file->SyncData(), IsOk());
  ASSERT_THAT(file->Truncate(5), IsOk());
  EXPECT_THAT(Log(), ElementsAre("create /x", "write /x [0, 5)", "sync in vain /x", "sync /x", "truncate /x to 5"));
}

TEST_F(SimulatedDiskTest, LocksDieWithTheirBootAndTheirNotesStay) {
  auto lock = disk_.TryLock("/lock");
  ASSERT_THAT(lock, IsOk());
  ASSERT_THAT((*lock)->WriteNote("process 1"), IsOk());
  EXPECT_THAT(Log(), ElementsAre("create /lock", "write /lock [0, 9)", "truncate /lock to 9", "sync /lock"));
  SimulatedDisk next(disk_.image());
  EXPECT_EQ(*next.ReadNote("/lock", 10), "process 1");
  EXPECT_THAT(next.TryLock("/lock"), IsOk());
  EXPECT_EQ(*next.ReadNote("/lock", 10), "") << "erased by the new holder";
  EXPECT_THAT(disk_.TryLock("/lock"), StatusIs(StatusCode::kUnavailable, HasSubstr("process 1")));
}

// The identity of what one boot has lost must not be that of another file in the next one.
TEST_F(SimulatedDiskTest, GivesNoIdentityTwiceThoughWhatHadItIsLost) {
  ASSERT_THAT(disk_.CreateDirectory("/d"), IsOk());
  ASSERT_THAT(disk_.SyncDirectory("/"), IsOk());
  ASSERT_THAT(disk_.CreateDirectory("/d/x"), IsOk());
  const FileId lost = *disk_.Identify("/d/x");
  const DiskLog log = disk_.log();
  SimulatedDisk next(log.StateAfter(3, {{.index = 2}}));
  EXPECT_EQ(next.Identify("/d")->inode, disk_.Identify("/d")->inode) << "it has survived";
  ASSERT_THAT(next.CreateDirectory("/d/x"), IsOk());
  EXPECT_NE(next.Identify("/d/x")->inode, lost.inode);
}

TEST_F(SimulatedDiskTest, NoLockReachesAnotherClient) {
  const auto first = disk_.NewClient(), second = disk_.NewClient();
  auto lock = first->TryLock("/lock");
  ASSERT_THAT(lock, IsOk());
  ASSERT_THAT((*lock)->WriteNote("first"), IsOk());
  EXPECT_THAT(first->TryLock("/lock"), StatusIs(StatusCode::kUnavailable, HasSubstr("first")));
  EXPECT_EQ(*second->ReadNote("/lock", 10), "first");
  EXPECT_THAT(second->TryLock("/lock"), IsOk());
  Create("/x", "hello");
  auto file = first->OpenForRewrite("/x", false);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(first->OpenForRead("/x", false), StatusIs(StatusCode::kNotFound, HasSubstr("being overwritten")));
  EXPECT_THAT(second->OpenForRead("/x", false), IsOk());
  EXPECT_THAT(second->OpenForRewrite("/x", false), IsOk());
  ASSERT_THAT((*file)->Close(), IsOk());
  EXPECT_THAT(first->OpenForRead("/x", false), IsOk());
  const std::set<uint64_t> devices = {disk_.Identify("/x")->device, first->Identify("/x")->device,
                                      second->Identify("/x")->device};
  EXPECT_EQ(devices.size(), 3u);
}

TEST(SimulatedDiskBoot, IsAnotherDeviceAndAKillIsNone) {
  SimulatedDisk disk;
  ASSERT_THAT(disk.CreateDirectory("/x"), IsOk());
  const FileId before = *disk.Identify("/x");
  SimulatedDisk booted(disk.image());
  EXPECT_NE(*booted.Identify("/x"), before);
  SimulatedDisk killed(disk.image(), disk.log().boot);
  EXPECT_EQ(*killed.Identify("/x"), before);
}

TEST_F(SimulatedDiskTest, ImageStaysWhenTheDiskGoesOn) {
  auto file = Create("/x", "hello");
  const DiskImage before = disk_.image();
  Append(*file, "!");
  ASSERT_THAT(disk_.Rename("/x", "/y"), IsOk());
  EXPECT_THAT(before.Contents(), UnorderedElementsAre(Pair("/x", "hello")));
  EXPECT_THAT(disk_.image().Contents(), UnorderedElementsAre(Pair("/y", "hello!")));
  ASSERT_THAT(disk_.RemoveFile("/y"), IsOk());
  EXPECT_EQ(disk_.image().nodes.size(), 1u) << "what is open but has no name is not on it";
  Append(*file, "?");
  EXPECT_EQ(*file->Size(), 7u);
}

TEST_F(SimulatedDiskTest, DirectTransfersMustBeAligned) {
  auto file = disk_.Create("/x", /*direct=*/true);
  ASSERT_THAT(file, IsOk());
  EXPECT_TRUE((*file)->direct());
  alignas(kDirectAlignment) std::byte block[2 * kDirectAlignment] = {};
  EXPECT_THAT((*file)->WriteAt(0, std::span(block)), IsOk());
  const auto misaligned = StatusIs(StatusCode::kInvalidArgument, HasSubstr("EINVAL"));
  EXPECT_THAT((*file)->WriteAt(512, std::span(block, kDirectAlignment)), misaligned);
  EXPECT_THAT((*file)->WriteAt(0, std::span(block, 512)), misaligned);
  EXPECT_THAT((*file)->ReadAt(0, std::span(block + 1, kDirectAlignment)), misaligned);
}

TEST_F(SimulatedDiskTest, HasRoomForAGibibyteInAFile) {
  auto file = Create("/x");
  const auto full = StatusIs(StatusCode::kResourceExhausted, HasSubstr("EFBIG"));
  EXPECT_THAT(file->Allocate(uint64_t{1} << 30), IsOk());
  EXPECT_THAT(file->Allocate((uint64_t{1} << 30) + 1), full);
  EXPECT_THAT(file->Truncate((uint64_t{1} << 30) + 1), full);
  EXPECT_THAT(file->WriteAt(uint64_t{1} << 30, std::as_bytes(std::span("x", 1))), full);
}

TEST_F(SimulatedDiskTest, HasNoUring) {
  EXPECT_THAT(disk_.NewIoQueue(IoQueueKind::kUring, 4), StatusIs(StatusCode::kUnavailable, HasSubstr("io_uring")));
  auto queue = disk_.NewIoQueue(IoQueueKind::kAuto, 4);
  ASSERT_THAT(queue, IsOk());
  EXPECT_EQ((*queue)->name(), "threads");
  EXPECT_EQ((*queue)->note(), "a simulated disk has no io_uring");
}

TEST_F(SimulatedDiskTest, QueueWritesWhenItIsAskedTo) {
  auto file = Create("/x");
  auto queue = disk_.NewIoQueue(IoQueueKind::kThreads, 4);
  ASSERT_THAT(queue, IsOk());
  std::byte bytes[10] = {};
  (*queue)->Submit({IoRequest::Kind::kWrite, file.get(), 5, bytes, sizeof(bytes), 1});
  EXPECT_THAT(Log(), ElementsAre("create /x", "write /x [5, 15)"));
  EXPECT_THAT((*queue)->Wait().status, IsOk());
}

TEST_F(SimulatedDiskTest, GivesOneOrderToWhatThreadsDo) {
  constexpr int kThreads = 4;
  constexpr int kWrites = 50;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::string path = "/" + std::to_string(i);
      auto file = Create(path + ".tmp");
      for (int write = 0; write < kWrites; ++write) Append(*file, "x");
      EXPECT_THAT(disk_.Rename(path + ".tmp", path), IsOk());
      EXPECT_THAT(disk_.SyncDirectory("/"), IsOk());
      disk_.log();
      disk_.image();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const DiskLog log = disk_.log();
  EXPECT_EQ(log.operations.size(), static_cast<size_t>(kThreads * (kWrites + 3)));
  EXPECT_EQ(log.StateAfter(log.operations.size()).Contents(), disk_.image().Contents());
}

// As Linux reports a failed write-back.
TEST_F(SimulatedDiskTest, AnOpenDirectoryHearsOnceOfASyncThatFailed) {
  const auto before = disk_.OpenDirectory("/");
  ASSERT_THAT(before, IsOk());
  disk_.FailSync("/");
  const auto after = disk_.OpenDirectory("/");
  ASSERT_THAT(after, IsOk());
  EXPECT_THAT((*after)->Sync(), IsOk());
  EXPECT_THAT((*before)->Sync(), StatusIs(absl::StatusCode::kInternal, "sync directory /: Input/output error (EIO)"));
  EXPECT_THAT((*before)->Sync(), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
