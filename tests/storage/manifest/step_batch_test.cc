#include "storage/manifest/step_batch.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

StepRecord Record(double loss) {
  StepRecord record;
  record.info.step = 7;
  record.info.attempt = std::string(32, 'a');
  record.info.metrics = {{"loss", loss}};
  return record;
}

TEST(StepBatch, PutsARecordWithItsIndexKeys) {
  rocksdb::WriteBatch batch;
  auto info = PutStep(batch, std::nullopt, Record(0.5));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->metrics.at("loss"), 0.5);
  EXPECT_EQ(batch.Count(), 3u);  // the record, "committed" and the metric
}

TEST(StepBatch, ChangesOnlyTheIndexKeysThatAreOthers) {
  rocksdb::WriteBatch batch;
  ASSERT_THAT(PutStep(batch, Record(0.5), Record(0.25)), IsOk());
  EXPECT_EQ(batch.Count(), 3u);  // the record, the old metric's key and the new one's
  rocksdb::WriteBatch same;
  ASSERT_THAT(PutStep(same, Record(0.5), Record(0.5)), IsOk());
  EXPECT_EQ(same.Count(), 1u);
}

TEST(StepBatch, TakesNothingThatCouldNotBeReadAgain) {
  rocksdb::WriteBatch batch;
  StepRecord record = Record(0.5);
  record.info.attempt = "not an id";
  EXPECT_THAT(PutStep(batch, std::nullopt, record),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("the record of step 7 is not written")));
  EXPECT_EQ(batch.Count(), 0u);
}

}  // namespace
}  // namespace tidemark::storage
