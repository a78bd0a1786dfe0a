#include "tests/crash/disordered_disk.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/crash/failing_disk.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::crash {
namespace {

using Operation = DisorderedDisk::Operation;
using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;

class DisorderedDiskTest : public testing::Test {
 protected:
  static DisorderedDisk::Match Is(Operation operation) {
    return [operation](Operation other, const std::string&) { return other == operation; };
  }

  // Writes, syncs and names a file.
  void MakeFile() {
    auto file = disordered_.Create("/file", /*direct=*/false);
    ASSERT_THAT(file, IsOk());
    const std::string_view text = "text";
    ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(text))), IsOk());
    ASSERT_THAT((*file)->SyncData(), IsOk());
    ASSERT_THAT((*file)->Close(), IsOk());
    ASSERT_THAT(disordered_.SyncDirectory("/"), IsOk());
  }

  std::vector<std::string> Operations() const {
    std::vector<std::string> operations;
    for (const auto& operation : disk_.log().operations) operations.push_back(operation.ToString());
    return operations;
  }

  storage::SimulatedDisk disk_;
  DisorderedDisk disordered_{disk_};
};

TEST_F(DisorderedDiskTest, DoesEverythingInOrderWithoutRules) {
  MakeFile();
  EXPECT_THAT(Operations(), ElementsAre("create /file", "write /file [0, 4)", "sync /file", "sync directory /"));
}

TEST_F(DisorderedDiskTest, LeavesOutWhatItIsTold) {
  disordered_.Drop(Is(Operation::kSyncData));
  MakeFile();
  EXPECT_THAT(Operations(), ElementsAre("create /file", "write /file [0, 4)", "sync directory /"));
}

TEST_F(DisorderedDiskTest, DoesLaterWhatItIsToldAlsoWhenTheFileIsClosed) {
  disordered_.Delay(Is(Operation::kSyncData), Is(Operation::kSyncDirectory));
  MakeFile();
  EXPECT_THAT(Operations(), ElementsAre("create /file", "write /file [0, 4)", "sync directory /", "sync /file"));
}

TEST_F(DisorderedDiskTest, RemovesLaterOrNeverWhatItIsToldTo) {
  disordered_.Delay(
      [](Operation operation, const std::string& path) { return operation == Operation::kRemove && path == "/file"; },
      Is(Operation::kSyncDirectory));
  disordered_.Drop(Is(Operation::kRemove));
  MakeFile();
  ASSERT_THAT(disordered_.CreateDirectory("/folder"), IsOk());
  EXPECT_THAT(disordered_.RemoveFile("/file"), IsOk());
  EXPECT_THAT(disordered_.RemoveDirectory("/folder"), IsOk());
  EXPECT_EQ(*storage::ReadSmallFile(disk_, "/file", 10), "text");
  EXPECT_THAT(disordered_.SyncDirectory("/"), IsOk());
  EXPECT_THAT(Operations(), ElementsAre("create /file", "write /file [0, 4)", "sync /file", "sync directory /",
                                        "create directory /folder", "sync directory /", "remove /file"));
}

TEST_F(DisorderedDiskTest, RepeatsWhatFailsWhereItIsTold) {
  FailingDisk failing(disk_);
  DisorderedDisk repeating(failing.files());
  repeating.Repeat(Is(Operation::kSyncDirectory));
  failing.FailOnce("SyncDirectory", "/", absl::InternalError("EIO"));
  EXPECT_THAT(repeating.SyncDirectory("/"), IsOk());
  EXPECT_THAT(Operations(), ElementsAre("sync in vain /", "sync directory /"));
  const auto directory = repeating.OpenDirectory("/");
  ASSERT_THAT(directory, IsOk());
  failing.FailOnce("SyncDirectory", "/", absl::InternalError("EIO"));
  EXPECT_THAT((*directory)->Sync(), IsOk());
  EXPECT_THAT(Operations(), ElementsAre("sync in vain /", "sync directory /", "sync in vain /", "sync directory /"));
  auto file = repeating.Create("/file", /*direct=*/false);
  ASSERT_THAT(file, IsOk());
  failing.FailOnce("SyncData", "file", absl::InternalError("EIO"));
  EXPECT_THAT((*file)->SyncData(), StatusIs(absl::StatusCode::kInternal, "EIO"));
}

TEST_F(DisorderedDiskTest, WritesLaterWhatWasSubmittedToAQueue) {
  disordered_.Delay(Is(Operation::kWrite), Is(Operation::kSyncData));
  auto file = disordered_.Create("/file", /*direct=*/false);
  ASSERT_THAT(file, IsOk());
  auto queue = disordered_.NewIoQueue(storage::IoQueueKind::kThreads, 1);
  ASSERT_THAT(queue, IsOk());
  std::string text = "text";
  (*queue)->Submit({.kind = storage::IoRequest::Kind::kWrite,
                    .file = file->get(),
                    .data = reinterpret_cast<std::byte*>(text.data()),
                    .size = text.size(),
                    .tag = 5});
  EXPECT_EQ((*queue)->Wait().tag, 5u);
  text = "....";  // is the caller's again
  EXPECT_EQ(*(*file)->Size(), 0u);
  ASSERT_THAT((*file)->SyncData(), IsOk());
  EXPECT_THAT(Operations(), ElementsAre("create /file", "sync /file", "write /file [0, 4)"));
  EXPECT_EQ(*storage::ReadSmallFile(disk_, "/file", 10), "text");
}

}  // namespace
}  // namespace tidemark::crash
