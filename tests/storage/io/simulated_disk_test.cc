#include "tests/storage/io/simulated_disk.h"

#include <string>
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
  EXPECT_THAT(Log(),
              ElementsAre("create directory /d", "create /d/x", "write /d/x [0, 5)", "sync /d/x",
                          "allocate 100 bytes for /d/x", "truncate /d/x to 7", "mark written", "rename /d/x to /y",
                          "remove /d", "sync directory /"));
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

}  // namespace
}  // namespace tidemark::storage
