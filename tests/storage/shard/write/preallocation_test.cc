#include "storage/shard/write/preallocation.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;

constexpr uint64_t kStep = Preallocation::kStepBytes;

class PreallocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = files_.Create(directory_ / "x", false);
    ASSERT_THAT(file, IsOk());
    file_ = *std::move(file);
    files_.Reset();
  }
  size_t allocations() const { return files_.calls().size(); }

  const TestDirectory directory_;
  FailingFileSystem files_{PosixFileSystem()};
  std::unique_ptr<File> file_;
};

TEST_F(PreallocationTest, StaysAStepAhead) {
  Preallocation blocks(file_.get(), 3 * kStep);
  ASSERT_THAT(blocks.Reserve(4096), IsOk());
  EXPECT_EQ(*file_->Size(), 4096 + kStep);
  ASSERT_THAT(blocks.Reserve(4096 + kStep), IsOk());
  EXPECT_EQ(allocations(), 2u);  // Size, and one Allocate
  ASSERT_THAT(blocks.Reserve(8192 + kStep), IsOk());
  EXPECT_EQ(*file_->Size(), 8192 + 2 * kStep);
  EXPECT_TRUE(blocks.possible());
}

TEST_F(PreallocationTest, TakesNoMoreThanTheFileCanNeed) {
  Preallocation blocks(file_.get(), 100'000);
  ASSERT_THAT(blocks.Reserve(1), IsOk());
  EXPECT_EQ(*file_->Size(), 100'000u);
  ASSERT_THAT(blocks.Reserve(100'001), IsOk());  // which it did not know
  EXPECT_EQ(*file_->Size(), 100'001u);
}

TEST_F(PreallocationTest, AsksOnceWhereTheFileSystemCannot) {
  files_.FailOperation("Allocate", absl::UnimplementedError("no fallocate"));
  Preallocation blocks(file_.get(), 3 * kStep);
  EXPECT_THAT(blocks.Reserve(1), IsOk());
  EXPECT_FALSE(blocks.possible());
  EXPECT_THAT(blocks.Reserve(2 * kStep), IsOk());
  EXPECT_EQ(*file_->Size(), 0u);
}

// A file on a disk with room for `room` bytes of it.
class FullDiskFile final : public File {
 public:
  explicit FullDiskFile(uint64_t room) : room_(room) {}
  const std::string& path() const override { return path_; }
  bool direct() const override { return false; }
  absl::StatusOr<uint64_t> Size() override { return 0; }
  absl::Status ReadAt(uint64_t, std::span<std::byte>) override { return absl::OkStatus(); }
  absl::Status WriteAt(uint64_t, std::span<const std::byte>) override { return absl::OkStatus(); }
  absl::Status Allocate(uint64_t bytes) override {
    asked.push_back(bytes);
    return bytes <= room_ ? absl::OkStatus() : absl::ResourceExhaustedError("no space");
  }
  absl::Status Truncate(uint64_t) override { return absl::OkStatus(); }
  absl::Status SyncData() override { return absl::OkStatus(); }
  absl::Status Close() override { return absl::OkStatus(); }

  std::vector<uint64_t> asked;

 private:
  const std::string path_ = "full";
  const uint64_t room_;
};

TEST(Preallocation, IsContentWithWhatIsNeededOnADiskThatIsNearlyFull) {
  FullDiskFile file(10'000);
  Preallocation blocks(&file, 3 * kStep);
  EXPECT_THAT(blocks.Reserve(4096), IsOk());
  EXPECT_THAT(blocks.Reserve(10'000), IsOk());
  EXPECT_THAT(file.asked, ElementsAre(4096 + kStep, 4096, 10'000 + kStep / 2, 10'000));
  EXPECT_THAT(blocks.Reserve(10'001), StatusIs(StatusCode::kResourceExhausted, "no space"));
}

TEST(Preallocation, StopsToAskForMoreThanIsNeededOnAFullDisk) {
  constexpr uint64_t kBlock = 1 << 20;
  constexpr uint64_t kBlocks = 1000;
  FullDiskFile file(kBlocks * kBlock);
  Preallocation blocks(&file, 100'000 * kBlock);
  for (uint64_t i = 1; i <= kBlocks; ++i) ASSERT_THAT(blocks.Reserve(i * kBlock), IsOk());
  EXPECT_THAT(blocks.Reserve((kBlocks + 1) * kBlock), StatusIs(StatusCode::kResourceExhausted, "no space"));
  EXPECT_LT(file.asked.size(), 200u);
}

}  // namespace
}  // namespace tidemark::storage
