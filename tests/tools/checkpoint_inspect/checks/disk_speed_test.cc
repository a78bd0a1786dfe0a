#include "tools/checkpoint_inspect/checks/disk_speed.h"

#include <filesystem>
#include <set>

#include "gmock/gmock.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::HasSubstr;

class DiskSpeedTest : public testing::Test {
 protected:
  DiskSpeedTest() {
    absl::StatusOr<std::unique_ptr<storage::File>> created = files_.Create(path_, /*direct=*/true);
    EXPECT_TRUE(created.ok()) << created.status();
    file_ = *std::move(created);
  }

  TestStore folder_;  // nothing but a directory that is removed
  storage::FileSystem& files_ = storage::PosixFileSystem();
  const std::string path_ = folder_.directory() + "/trial";
  std::unique_ptr<storage::File> file_;
};

TEST_F(DiskSpeedTest, WritesAndReadsAsManyBytesAsItMay) {
  uint64_t written = 0;
  uint64_t read = 0;
  const auto speed = MeasureSpeed(files_, *file_,
                                  {.bytes_max = 20 * kSpeedBlockBytes + 1,  // more than are in flight at a time
                                   .duration_max = absl::Hours(1),
                                   .progress = [&](std::string_view what, uint64_t bytes_done, uint64_t bytes_max) {
                                     EXPECT_LE(bytes_done, bytes_max);
                                     (what == "writing" ? written : read) = bytes_done;
                                   }});
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_EQ(speed->bytes, 20 * kSpeedBlockBytes);
  EXPECT_EQ(written, speed->bytes);
  EXPECT_EQ(read, speed->bytes);
  EXPECT_GT(speed->write_bytes_per_second, 0);
  EXPECT_GT(speed->read_bytes_per_second, 0);
  EXPECT_EQ(speed->direct, file_->direct());
  EXPECT_GE(std::filesystem::file_size(path_), speed->bytes);
}

TEST_F(DiskSpeedTest, WritesNoTwoPagesThatAreTheSame) {
  ASSERT_TRUE(MeasureSpeed(files_, *file_, {.bytes_max = 40 * kSpeedBlockBytes, .duration_max = absl::Hours(1)}).ok());
  const std::string bytes = ReadWhole(path_);
  std::set<std::string_view> pages;
  for (size_t i = 0; i < bytes.size(); i += storage::kDirectAlignment) {
    pages.insert(std::string_view(bytes).substr(i, storage::kDirectAlignment));
  }
  EXPECT_EQ(pages.size(), bytes.size() / storage::kDirectAlignment);
}

TEST_F(DiskSpeedTest, WritesOneBlockWhereThereIsNoTime) {
  const auto speed =
      MeasureSpeed(files_, *file_, {.bytes_max = 100 * kSpeedBlockBytes, .duration_max = absl::ZeroDuration()});
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_EQ(speed->bytes, kSpeedBlockBytes);
}

TEST_F(DiskSpeedTest, WritesOneBlockWhereItMayWriteLess) {
  const auto speed = MeasureSpeed(files_, *file_, {.bytes_max = 0});
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_EQ(speed->bytes, kSpeedBlockBytes);
}

TEST_F(DiskSpeedTest, EndsWhenItIsInterrupted) {
  int asked = 0;
  const auto speed = MeasureSpeed(
      files_, *file_, {.bytes_max = 100 * kSpeedBlockBytes, .duration_max = absl::Hours(1), .cancelled = [&asked] {
                         return ++asked > 30;
                       }});
  EXPECT_EQ(speed.status().code(), absl::StatusCode::kCancelled);
  EXPECT_LT(asked, 100);
  EXPECT_EQ(MeasureSyncs(*file_, absl::Hours(1), [] { return true; }).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(DiskSpeedTest, GivesTheDisksError) {
  const absl::Status full = absl::ResourceExhaustedError("full");
  for (const char* operation : {"NewIoQueue", "Allocate", "QueueWrite", "SyncData", "QueueRead"}) {
    SCOPED_TRACE(operation);
    storage::FailingFileSystem failing(files_);
    absl::StatusOr<std::unique_ptr<storage::File>> file = failing.Create(path_ + operation, /*direct=*/true);
    ASSERT_TRUE(file.ok()) << file.status();
    // All of them: less is allocated where much cannot be.
    failing.SetRule([&](const storage::FailingFileSystem::Call& call) {
      return call.operation == operation ? full : absl::OkStatus();
    });
    EXPECT_EQ(MeasureSpeed(failing, **file, {.bytes_max = 4 * kSpeedBlockBytes}).status(), full);
  }
  for (const char* operation : {"WriteAt", "SyncData"}) {
    SCOPED_TRACE(operation);
    storage::FailingFileSystem failing(files_);
    absl::StatusOr<std::unique_ptr<storage::File>> file = failing.Create(path_ + operation + "2", /*direct=*/true);
    ASSERT_TRUE(file.ok()) << file.status();
    failing.FailOperation(operation, full);
    EXPECT_EQ(MeasureSyncs(**file, absl::ZeroDuration(), nullptr).status(), full);
  }
}

TEST_F(DiskSpeedTest, TimesSyncs) {
  ASSERT_TRUE(MeasureSpeed(files_, *file_, {.bytes_max = kSpeedBlockBytes}).ok());
  const auto syncs = MeasureSyncs(*file_, absl::ZeroDuration(), nullptr);
  ASSERT_TRUE(syncs.ok()) << syncs.status();
  EXPECT_EQ(syncs->syncs, 1U);
  EXPECT_GT(syncs->median, absl::ZeroDuration());
  EXPECT_EQ(syncs->longest, syncs->median);
}

}  // namespace
}  // namespace tidemark::inspect
