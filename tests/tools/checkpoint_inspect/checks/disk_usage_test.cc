#include "tools/checkpoint_inspect/checks/disk_usage.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using storage::IsOk;
using storage::StatusIs;
using testing::_;

class DiskUsageTest : public testing::Test {
 protected:
  // A file of so many KiB, in folders that are made if need be.
  void Put(const std::string& name, size_t kib) {
    const std::string path = directory_ / name;
    fs::create_directories(fs::path(path).parent_path());
    WriteWhole(path, std::string(kib << 10, 'x'));
  }
  // What a file or directory takes by itself.
  uint64_t BlocksOf(const std::string& name) {
    struct stat info;
    EXPECT_EQ(lstat((directory_ / name).c_str(), &info), 0) << name;
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }
  DiskUsage Measure() {
    const auto usage = MeasureDisk(directory_.path(), {"a", "b"});
    EXPECT_THAT(usage, IsOk());
    return usage.value_or(DiskUsage());
  }

  // In memory blocks are allocated when they are written.
  storage::TestDirectory directory_ = storage::TestDirectory::InMemory();
};

TEST_F(DiskUsageTest, AddsUpBlocksByWhatTheyAreFor) {
  Put("steps/a/shard", 100);
  Put("steps/b/shard", 300);
  Put("steps/c/shard", 50);
  Put("quarantine/d/deep/shard", 20);
  Put("journal/0000/00/0000000001", 10);
  Put("index/000001.log", 15);
  Put("journal.broken-1/0000/00/0000000001", 30);
  Put("manifest.broken-1/000001.log", 40);
  Put("retired.tmk", 60);
  Put("LOCK", 1);
  const DiskUsage usage = Measure();
  EXPECT_EQ(usage.steps, BlocksOf("steps") + BlocksOf("steps/a") + BlocksOf("steps/a/shard") + BlocksOf("steps/b") +
                             BlocksOf("steps/b/shard"));
  EXPECT_GE(usage.steps, 400u << 10);
  EXPECT_EQ(usage.other_attempts, BlocksOf("steps/c") + BlocksOf("steps/c/shard"));
  EXPECT_EQ(usage.quarantine, BlocksOf("quarantine") + BlocksOf("quarantine/d") + BlocksOf("quarantine/d/deep") +
                                  BlocksOf("quarantine/d/deep/shard"));
  EXPECT_EQ(usage.journal, BlocksOf("journal") + BlocksOf("journal/0000") + BlocksOf("journal/0000/00") +
                               BlocksOf("journal/0000/00/0000000001"));
  EXPECT_EQ(usage.index, BlocksOf("index") + BlocksOf("index/000001.log"));
  EXPECT_EQ(usage.broken_journals, BlocksOf("journal.broken-1") + BlocksOf("journal.broken-1/0000") +
                                       BlocksOf("journal.broken-1/0000/00") +
                                       BlocksOf("journal.broken-1/0000/00/0000000001") + BlocksOf("manifest.broken-1") +
                                       BlocksOf("manifest.broken-1/000001.log"));
  EXPECT_EQ(usage.retired, BlocksOf("retired.tmk"));
  EXPECT_EQ(usage.other, BlocksOf("") + BlocksOf("LOCK"));
  EXPECT_EQ(usage.unread, 0u);
  EXPECT_EQ(usage.total(), usage.steps + usage.other_attempts + usage.quarantine + usage.journal + usage.index +
                               usage.broken_journals + usage.retired + usage.other);
}

TEST_F(DiskUsageTest, CountsAFileOfManyNamesOnce) {
  Put("journal/0000/00/0000000001", 100);
  const std::string segment = directory_ / "journal/0000/00/0000000001";
  for (const char* name : {"/0000000002", "/0000000003"}) {
    std::filesystem::create_hard_link(segment, std::filesystem::path(segment).parent_path().string() + name);
  }
  const DiskUsage usage = Measure();
  EXPECT_EQ(usage.journal, BlocksOf("journal") + BlocksOf("journal/0000") + BlocksOf("journal/0000/00") +
                               BlocksOf("journal/0000/00/0000000001"));
}

TEST_F(DiskUsageTest, CountsWhatIsAllocatedAndFollowsNoLink) {
  Put("elsewhere", 200);
  storage::TestDirectory other;
  WriteWhole(other / "large", std::string(1 << 20, 'x'));
  fs::create_directories(directory_ / "steps");
  fs::create_directory_symlink(other.path(), directory_ / "steps/a");
  fs::create_directories(directory_ / "steps/b");
  WriteWhole(directory_ / "steps/b/hole", "");
  fs::resize_file(directory_ / "steps/b/hole", 1 << 30);
  EXPECT_LT(Measure().steps, 64u << 10);
}

TEST_F(DiskUsageTest, NamesHowManyDirectoriesItCouldNotLookInto) {
  std::string deep = "quarantine";
  for (int i = 0; i < 20; ++i) deep += "/x";
  fs::create_directories(directory_ / deep);
  EXPECT_EQ(Measure().unread, 1u);
  if (geteuid() == 0) return;  // nothing is closed to root
  fs::create_directories(directory_ / "steps/a");
  fs::permissions(directory_ / "steps/a", fs::perms::none);
  EXPECT_EQ(Measure().unread, 2u);
  fs::permissions(directory_ / "steps/a", fs::perms::owner_all);
}

TEST_F(DiskUsageTest, FailsWhereThereIsNoDirectory) {
  EXPECT_THAT(MeasureDisk(directory_ / "absent", {}), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_EQ(MeasureRoom(directory_ / "absent"), std::nullopt);
}

TEST_F(DiskUsageTest, KnowsTheRoomOfTheFileSystem) {
  const auto room = MeasureRoom(directory_.path());
  ASSERT_TRUE(room.has_value());
  EXPECT_GT(room->total_bytes, 0u);
  EXPECT_LE(room->free_bytes, room->total_bytes);
}

}  // namespace
}  // namespace tidemark::inspect
