#include "storage/shard/preallocation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;

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

TEST_F(PreallocationTest, SaysThatTheDiskIsFullWhenItComesToThat) {
  files_.FailOperation("Allocate", absl::ResourceExhaustedError("no space"), 1);
  Preallocation blocks(file_.get(), 3 * kStep);
  EXPECT_THAT(blocks.Reserve(1), IsOk());
  EXPECT_THAT(blocks.Reserve(2 + kStep), StatusIs(StatusCode::kResourceExhausted, "no space"));
}

}  // namespace
}  // namespace tidemark::storage
