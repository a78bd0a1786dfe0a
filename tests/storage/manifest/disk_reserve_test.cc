#include "storage/manifest/disk_reserve.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

class DiskReserveTest : public testing::Test {
 protected:
  const TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  FailingFileSystem files_{PosixFileSystem()};
};

TEST_F(DiskReserveTest, HoldsBlocksUntilItIsGivenUp) {
  EXPECT_TRUE(SetRoomAside(files_, layout_));
  struct stat info = {};
  ASSERT_EQ(stat(layout_.reserve().c_str(), &info), 0);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, kDiskReserveBytes);
  EXPECT_TRUE(SetRoomAside(files_, layout_)) << "it is there";
  EXPECT_TRUE(GiveUpRoom(files_, layout_));
  EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
  EXPECT_FALSE(GiveUpRoom(files_, layout_));
}

TEST_F(DiskReserveTest, GetsTheRoomThatACrashLeftItWithout) {
  for (const uint64_t bytes : {uint64_t{0}, kDiskReserveBytes / 2}) {
    std::ofstream(layout_.reserve()) << std::string(bytes, 'x');
    EXPECT_TRUE(SetRoomAside(files_, layout_));
    EXPECT_EQ(std::filesystem::file_size(layout_.reserve()), kDiskReserveBytes);
    EXPECT_TRUE(GiveUpRoom(files_, layout_));
  }
  std::ofstream(layout_.reserve()) << std::string(kDiskReserveBytes + 1, 'x');
  EXPECT_TRUE(SetRoomAside(files_, layout_));
  EXPECT_EQ(std::filesystem::file_size(layout_.reserve()), kDiskReserveBytes + 1) << "it is enough";
  std::ofstream(layout_.reserve()) << "";
  files_.FailOperation("Allocate", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_FALSE(SetRoomAside(files_, layout_));
  EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
}

TEST_F(DiskReserveTest, IsNotMadeWhereThereIsNoRoom) {
  files_.FailOperation("Allocate", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_FALSE(SetRoomAside(files_, layout_));
  EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
  files_.FailOperation("Create", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_FALSE(SetRoomAside(files_, layout_));
}

TEST_F(DiskReserveTest, IsNotMadeWhereTheFileSystemCannot) {
  files_.FailOperation("Allocate", absl::UnimplementedError("EOPNOTSUPP"));
  EXPECT_TRUE(SetRoomAside(files_, layout_)) << "another try would not help";
  EXPECT_FALSE(std::filesystem::exists(layout_.reserve()));
}

TEST_F(DiskReserveTest, TheRetiredShardIsGivenUpToo) {
  std::ofstream(layout_.retired()) << "room";
  EXPECT_TRUE(GiveUpRoom(files_, layout_));
  EXPECT_FALSE(std::filesystem::exists(layout_.retired()));
}

}  // namespace
}  // namespace tidemark::storage
