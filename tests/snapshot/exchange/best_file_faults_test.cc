// A program of its own: its system calls can be made to fail.

#include <cerrno>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "tests/snapshot/exchange/exported_file.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/system_calls.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/best_file.h"
#include "tidemark/capture.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using storage::SystemCallFault;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(BestFileFaults, AFullDiskHarmsNoSaveAndTheBestIsExportedWhenThereIsRoom) {
  const storage::TestDirectory directory;
  const std::string path = directory / "best.safetensors";
  auto opened = AsyncCheckpointer::Open({.directory = directory / "store"});
  ASSERT_THAT(opened, IsOk());
  TestTrainer trainer(1000);
  const auto save = [&](int64_t step, double loss) {
    trainer.SetTo(step);
    const auto handle = (*opened)->Save(step, trainer.state, {.metrics = {{"loss", loss}}});
    ASSERT_THAT(handle, IsOk());
    ASSERT_THAT(handle->committed().Wait(), IsOk());
  };
  save(1, 3);
  absl::Notification exported;
  std::vector<std::string> warnings;
  auto best = BestFile::Start(
      {.store = directory / "store",
       .metric = "loss",
       .path = path,
       .poll_interval = absl::Hours(1),
       .observer = ObserverOf({.exported =
                                   [&](int64_t, std::string_view) {
                                     if (!exported.HasBeenNotified()) exported.Notify();
                                   },
                               .warning = [&](std::string_view line) { warnings.emplace_back(line); }})});
  ASSERT_THAT(best, IsOk());
  exported.WaitForNotification();  // on its own thread, which then sleeps for an hour
  save(2, 2);
  {
    SystemCallFault full("pwrite", ENOSPC, 1000);
    EXPECT_THAT((*best)->Update(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("best.safetensors")));
  }
  EXPECT_EQ(ExportedTensors(path).step(), "1");
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("step 2, the best by 'loss', was not exported"),
                                          HasSubstr("ENOSPC"), HasSubstr("; make room for it."))));
  EXPECT_THAT((*best)->Update(), IsOk());
  EXPECT_EQ(ExportedTensors(path).step(), "2");
  save(3, 1);
  EXPECT_THAT((*best)->Update(), IsOk());
  EXPECT_EQ(ExportedTensors(path).step(), "3");
  EXPECT_EQ(FilesIn(directory.path()), 1);
  EXPECT_THAT((*opened)->Close(), IsOk());
}

TEST(BestFileFaults, WhateverCallFailsTheFileIsTheOldOneOrTheNew) {
  const storage::TestDirectory directory;
  const std::string path = directory / "best.safetensors";
  TestTrainer trainer(1000);
  trainer.SetTo(1);
  const auto old = Capture(trainer.state);
  ASSERT_THAT(old, IsOk());
  trainer.SetTo(2);
  const auto fresh = Capture(trainer.state);
  ASSERT_THAT(fresh, IsOk());
  ASSERT_THAT(ExportSafetensors(**old, path), IsOk());
  const std::string old_bytes = ReadExported(path);
  std::string failed = "none";
  size_t index = 0;
  for (; !failed.empty(); ++index) {
    ASSERT_THAT(ExportSafetensors(**old, path, {.replace = true}), IsOk());
    absl::Status status;
    {
      SystemCallFault fault(index, EIO);
      status = ExportSafetensors(**fresh, path, {.replace = true});
      failed = fault.failed();
    }
    SCOPED_TRACE(testing::Message() << "call " << index << ": " << failed);
    const bool is_new = ExportedTensors(path).header().metadata.at("note") == "after step 2";
    EXPECT_TRUE(is_new || ReadExported(path) == old_bytes);
    EXPECT_TRUE(is_new || !status.ok());
    EXPECT_EQ(FilesIn(directory.path()), 1);
  }
  EXPECT_GT(index, 5u);
}

}  // namespace
}  // namespace tidemark
