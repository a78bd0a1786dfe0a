// A file system that shuts itself down, as ext4 and XFS do when they cannot write their journal: no sync succeeds.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "tests/real/loop_file_system.h"
#include "tests/real/run_length.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

class ShutDownTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto disk = LoopFileSystem::Make({.type = GetParam(), .bytes = 320 << 20, .directory = folder_.path()});
    if (absl::IsUnimplemented(disk.status())) {
      const std::string why = GetParam() + ": " + std::string(disk.status().message());
      Summarize("SKIPPED " + why);
      GTEST_SKIP() << why;
    }
    ASSERT_THAT(disk, IsOk());
    disk_ = *std::move(disk);
    ASSERT_THAT(disk_->Mount(), IsOk());
  }

  storage::TestDirectory folder_;
  std::unique_ptr<LoopFileSystem> disk_;
};

TEST_P(ShutDownTest, NoSyncSucceeds) {
  storage::FileSystem& files = storage::PosixFileSystem();
  const std::string folder = folder_ / "disk/folder";
  const std::string name = folder + "/name";
  ASSERT_THAT(files.CreateDirectory(folder), IsOk());
  auto file = files.Create(folder + "/file", /*direct=*/false);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->SyncData(), IsOk());
  auto directory = files.OpenDirectory(folder);
  ASSERT_THAT(directory, IsOk());
  ASSERT_THAT((*directory)->Sync(), IsOk());

  ASSERT_THAT(files.HardLink(folder + "/file", name), IsOk());
  ASSERT_THAT(disk_->CutPower(), IsOk());
  EXPECT_THAT((*directory)->Sync(), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_FALSE(files.SyncDirectory(folder).ok());
  EXPECT_THAT((*file)->SyncData(), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  file->reset();
  directory->reset();

  ASSERT_THAT(disk_->Unmount(), IsOk());
  ASSERT_THAT(disk_->Mount(), IsOk());
  EXPECT_TRUE(absl::IsNotFound(files.Identify(name).status())) << "else nothing was lost";
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShutDownTest, testing::Values("ext4", "xfs"),
                         [](const testing::TestParamInfo<std::string>& info) { return info.param; });

}  // namespace
}  // namespace tidemark
