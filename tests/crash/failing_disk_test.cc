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

TEST_F(FailingDiskTest, OperationsFailUntilItIsHealed) {
  failing_.FailIn("CreateDirectory", "/a", absl::InternalError("EIO"));
  EXPECT_THAT(failing_.files().CreateDirectory("/ab"), StatusIs(absl::StatusCode::kInternal, "EIO"));
  EXPECT_THAT(failing_.files().CreateDirectory("/ac"), StatusIs(absl::StatusCode::kInternal, "EIO"));
  failing_.FailOnceIn("CreateDirectory", "/a", absl::InternalError("EIO"));
  EXPECT_THAT(failing_.files().CreateDirectory("/ab"), StatusIs(absl::StatusCode::kInternal, "EIO"));
  EXPECT_THAT(failing_.files().CreateDirectory("/ac"), IsOk());
}

TEST_F(FailingDiskTest, OnAFullDiskOnlySparesAreWritten) {
  auto spare = failing_.files().Create("/spare-1", /*direct=*/false);
  auto other = failing_.files().Create("/other", /*direct=*/false);
  ASSERT_THAT(spare, IsOk());
  ASSERT_THAT(other, IsOk());
  failing_.Fill();
  const auto is_full = StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("ENOSPC"));
  const std::string_view text = "text";
  EXPECT_THAT((*spare)->WriteAt(0, std::as_bytes(std::span(text))), IsOk());
  EXPECT_THAT((*other)->WriteAt(0, std::as_bytes(std::span(text))), is_full);
  EXPECT_THAT(failing_.files().Create("/new", /*direct=*/false), is_full);
  EXPECT_THAT(failing_.files().CreateDirectory("/new"), is_full);
  EXPECT_THAT(failing_.files().CreateDirectory("/other"), StatusIs(absl::StatusCode::kAlreadyExists, testing::_));
  EXPECT_THAT(failing_.files().Rename("/spare-1", "/entry"), IsOk());
}

TEST_F(FailingDiskTest, NothingFailsOnceItIsHealed) {
  failing_.FailOnce("CreateDirectory", "/a", absl::ResourceExhaustedError("ENOSPC"));
  failing_.Heal();
  EXPECT_THAT(failing_.files().CreateDirectory("/a"), IsOk());
}

}  // namespace
}  // namespace tidemark::crash
