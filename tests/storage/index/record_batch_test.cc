#include "storage/index/record_batch.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

StepRecord RecordWithLoss(double loss) {
  StepRecord record;
  record.info.step = 7;
  record.info.attempt = std::string(32, 'a');
  record.info.metrics = {{"loss", loss}};
  return record;
}

TEST(RecordBatch, PutsARecordWithItsIndexKeys) {
  rocksdb::WriteBatch batch;
  auto info = PutStep(batch, std::nullopt, RecordWithLoss(0.5));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->metrics.at("loss"), 0.5);
  EXPECT_EQ(batch.Count(), 3u);  // the record, "committed" and the metric
}

TEST(RecordBatch, ChangesOnlyTheIndexKeysThatAreOthers) {
  rocksdb::WriteBatch batch;
  ASSERT_THAT(PutStep(batch, RecordWithLoss(0.5), RecordWithLoss(0.25)), IsOk());
  EXPECT_EQ(batch.Count(), 3u);  // the record, the old metric's key and the new one's
  rocksdb::WriteBatch same;
  ASSERT_THAT(PutStep(same, RecordWithLoss(0.5), RecordWithLoss(0.5)), IsOk());
  EXPECT_EQ(same.Count(), 1u);
}

TEST(RecordBatch, TakesNothingThatCouldNotBeReadAgain) {
  rocksdb::WriteBatch batch;
  StepRecord record = RecordWithLoss(0.5);
  record.info.attempt = "not an id";
  EXPECT_THAT(PutStep(batch, std::nullopt, record),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("the record of step 7: step fact was not written: attempt")));
  EXPECT_EQ(batch.Count(), 0u);
}

TEST(RecordBatch, TakesNoStepThatWouldBeReadAsAnother) {
  rocksdb::WriteBatch batch;
  StepRecord record = RecordWithLoss(0.5);
  record.info.metrics = {{"loss \xfe", 1}, {"loss \xff", 2}};  // one name, once they are UTF-8
  EXPECT_THAT(PutStep(batch, std::nullopt, record),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::HasSubstr("the record of step 7: step fact was not written: the name of a metric")));
  EXPECT_EQ(batch.Count(), 0u);
}

TEST(RecordBatch, PutsEveryOtherRecord) {
  rocksdb::WriteBatch batch;
  ASSERT_THAT(PutStore(batch, {.sequence = 7}), IsOk());
  ASSERT_THAT(PutPhases(batch, {.step = 7, .attempt = std::string(32, 'a'), .phases = {{.name = "write"}}}), IsOk());
  ASSERT_THAT(PutDeletion(batch, {.step = 7, .references = {AttemptId{{1}}}}), IsOk());
  EXPECT_EQ(batch.Count(), 3u);
}

TEST(RecordBatch, TakesNoOtherRecordThatCouldNotBeReadAgain) {
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    testing::HasSubstr(what + " was not written, because it could not be read back: "));
  };
  rocksdb::WriteBatch batch;
  EXPECT_THAT(PutStore(batch, {.version = kStoreRecordVersion + 1}), refused("the store's record"));
  EXPECT_THAT(PutPhases(batch, {.step = 7, .attempt = "not an id"}), refused("the record of the phases of step 7"));
  EXPECT_THAT(PutDeletion(batch, {.step = -1}), refused("the record of step -1's deletion"));
  EXPECT_EQ(batch.Count(), 0u);
}

}  // namespace
}  // namespace tidemark::storage
