#include "storage/manifest/manifest.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

StepRecord MakeRecord(int64_t step, uint8_t attempt, uint64_t sequence) {
  StepRecord record;
  record.info.step = step;
  record.info.attempt = ToHex(AttemptId{{attempt}}.bytes);
  record.info.sequence = sequence;
  return record;
}

class ManifestTest : public testing::Test {
 protected:
  TestDirectory directory_;
  const std::string path_ = directory_ / "manifest";
  const StoreId store_{{7}};
};

TEST_F(ManifestTest, KeepsWhatWasCommitted) {
  {
    auto manifest = Manifest::Create(path_, store_);
    ASSERT_THAT(manifest, IsOk());
    EXPECT_EQ((*manifest)->last_sequence(), 0u);
    ASSERT_THAT((*manifest)->Commit(MakeRecord(10, 1, 1)), IsOk());
    ASSERT_THAT((*manifest)->Commit(MakeRecord(20, 2, 2)), IsOk());
  }
  auto manifest = Manifest::Open(path_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ((*manifest)->store_id(), store_);
  EXPECT_EQ((*manifest)->last_sequence(), 2u);
  EXPECT_EQ((*(*manifest)->Find(10))->info.sequence, 1u);
  EXPECT_FALSE((*manifest)->Find(15)->has_value());
}

TEST_F(ManifestTest, FindsTheHighestStepAtOrBelow) {
  auto manifest = Manifest::Create(path_, store_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_FALSE((*manifest)->FindAtOrBelow(100)->has_value());
  for (int64_t step : {300, 5, 70000}) ASSERT_THAT((*manifest)->Commit(MakeRecord(step, 1, 1)), IsOk());
  EXPECT_EQ((*(*manifest)->FindAtOrBelow(INT64_MAX))->info.step, 70000);
  EXPECT_EQ((*(*manifest)->FindAtOrBelow(69999))->info.step, 300);
  EXPECT_EQ((*(*manifest)->FindAtOrBelow(5))->info.step, 5);
  EXPECT_FALSE((*manifest)->FindAtOrBelow(4)->has_value());
}

TEST_F(ManifestTest, VisitsStepsInOrderUntilToldToStop) {
  auto manifest = Manifest::Create(path_, store_);
  ASSERT_THAT(manifest, IsOk());
  for (int64_t step : {300, 5, 70000}) ASSERT_THAT((*manifest)->Commit(MakeRecord(step, 1, 1)), IsOk());
  std::vector<int64_t> seen;
  ASSERT_THAT((*manifest)->ForEach([&](const StepRecord& record) {
    seen.push_back(record.info.step);
    return seen.size() < 2;
  }),
              IsOk());
  EXPECT_THAT(seen, ElementsAre(5, 300));
}

TEST_F(ManifestTest, MarksAReplacedAttemptForDeletionInTheSameBatch) {
  auto manifest = Manifest::Create(path_, store_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_FALSE((*manifest)->Commit(MakeRecord(10, 1, 1))->has_value());
  auto replaced = (*manifest)->Commit(MakeRecord(10, 2, 2));
  ASSERT_THAT(replaced, IsOk());
  ASSERT_TRUE(replaced->has_value());
  EXPECT_EQ((*replaced)->attempt, (AttemptId{{1}}));
  EXPECT_EQ((*(*manifest)->Find(10))->info.sequence, 2u);
  EXPECT_EQ((*manifest)->Deletions()->size(), 1u);
  ASSERT_THAT((*manifest)->FinishDeletion(AttemptId{{1}}), IsOk());
  EXPECT_TRUE((*manifest)->Deletions()->empty());
}

TEST_F(ManifestTest, HasNothingToDeleteForAFailedAttemptOrTheSameOne) {
  auto manifest = Manifest::Create(path_, store_);
  ASSERT_THAT(manifest, IsOk());
  StepRecord failed = MakeRecord(10, 0, 1);
  failed.info.attempt.clear();
  failed.info.state = StepState::kFailed;
  ASSERT_THAT((*manifest)->Update(failed), IsOk());
  EXPECT_FALSE((*manifest)->Commit(MakeRecord(10, 1, 2))->has_value());
  EXPECT_FALSE((*manifest)->Commit(MakeRecord(10, 1, 2))->has_value());
}

TEST_F(ManifestTest, IsReadBesideItsWriterWithoutATrace) {
  auto writer = Manifest::Create(path_, store_);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Commit(MakeRecord(10, 1, 1)), IsOk());
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator());
  };
  const auto before = count();
  auto reader = Manifest::OpenReadOnly(path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE((*reader)->Find(10)->has_value());
  EXPECT_EQ(count(), before);
  EXPECT_FALSE((*reader)->Commit(MakeRecord(11, 1, 1)).ok());
}

TEST_F(ManifestTest, SaysWhetherThereIsOne) {
  EXPECT_THAT(Manifest::Open(path_), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  ASSERT_THAT(Manifest::Create(path_, store_), IsOk());
  EXPECT_THAT(Manifest::Create(path_, store_), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(path_)));
}

TEST_F(ManifestTest, RefusesOneThatIsBroken) {
  ASSERT_THAT(Manifest::Create(path_, store_), IsOk());
  std::ofstream(path_ + "/CURRENT") << "garbage";
  EXPECT_THAT(Manifest::Open(path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
  EXPECT_THAT(Manifest::OpenReadOnly(path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
}

TEST_F(ManifestTest, HasOneWriter) {
  auto writer = Manifest::Create(path_, store_);
  ASSERT_THAT(writer, IsOk());
  EXPECT_FALSE(Manifest::Open(path_).ok());
}

}  // namespace
}  // namespace tidemark::storage
