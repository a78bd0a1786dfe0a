#include "tests/crash/failing_disk.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::crash {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;

class FailingDiskTest : public testing::Test {
 protected:
  // What a crash now may undo.
  std::vector<std::string> Unsynced() const {
    const storage::DiskLog log = disk_.log();
    std::vector<std::string> lines;
    for (const size_t i : log.Unsynced(log.operations.size())) lines.push_back(log.operations[i].ToString());
    return lines;
  }

  storage::SimulatedDisk disk_;
  FailingDisk failing_{disk_};
};

TEST_F(FailingDiskTest, SyncThatFailedIsFinalAndTheNextOneSaysOk) {
  auto file = failing_.files().Create("/file", /*direct=*/false);
  ASSERT_THAT(file, IsOk());
  const std::string_view text = "text";
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(text))), IsOk());
  failing_.FailOnce("SyncData", "file", absl::InternalError("EIO"));
  EXPECT_THAT((*file)->SyncData(), StatusIs(absl::StatusCode::kInternal, "EIO"));
  EXPECT_THAT((*file)->SyncData(), IsOk());
  failing_.FailOnce("SyncDirectory", "/", absl::InternalError("EIO"));
  EXPECT_THAT(failing_.files().SyncDirectory("/"), StatusIs(absl::StatusCode::kInternal, "EIO"));
  EXPECT_THAT(failing_.files().SyncDirectory("/"), IsOk());
  EXPECT_THAT(Unsynced(), ElementsAre("create /file", "write /file [0, 4)"));
}

TEST_F(FailingDiskTest, OtherOperationsFailAndAreNotDone) {
  failing_.FailOnce("CreateDirectory", "/b", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_THAT(failing_.files().CreateDirectory("/a"), IsOk());
  EXPECT_THAT(failing_.files().CreateDirectory("/b"), StatusIs(absl::StatusCode::kResourceExhausted, "ENOSPC"));
  EXPECT_THAT(Unsynced(), ElementsAre("create directory /a"));
}

TEST_F(FailingDiskTest, NothingFailsOnceItIsHealed) {
  failing_.FailOnce("CreateDirectory", "/a", absl::ResourceExhaustedError("ENOSPC"));
  failing_.Heal();
  EXPECT_THAT(failing_.files().CreateDirectory("/a"), IsOk());
}

}  // namespace
}  // namespace tidemark::crash
