// How the index finds steps by a metric and by what they refer to, and that its keys follow every change.

#include <atomic>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/index/database.h"
#include "storage/index/index_keys.h"
#include "storage/index/manifest.h"
#include "tests/non_finite.h"
#include "tests/storage/index/made_records.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

StepRecord RecordWith(int64_t step, uint8_t attempt, std::map<std::string, double> metrics) {
  StepRecord record = MakeRecord(step, attempt);
  record.info.metrics = std::move(metrics);
  return record;
}

class ManifestIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    auto created = Manifest::Create(PosixFileSystem(), path_, store_);
    ASSERT_THAT(created, IsOk());
    manifest_ = *std::move(created);
  }

  void Commit(const StepRecord& record) { EXPECT_THAT(ApplyRecord(*manifest_, record), IsOk()); }

  void SetState(int64_t step, StepState state) {
    EXPECT_THAT(ApplyState(*manifest_, **manifest_->Find(step), state), IsOk());
  }

  // Behind the manifest's back, which is opened again.
  void PutKey(const std::string& key, const std::string& value) {
    manifest_.reset();
    {
      auto database = Database::Open(PosixFileSystem(), path_);
      ASSERT_THAT(database, IsOk());
      rocksdb::WriteBatch batch;
      batch.Put(key, value);
      ASSERT_THAT((*database)->Write(batch), IsOk());
    }
    auto opened = Manifest::Open(PosixFileSystem(), path_);
    ASSERT_THAT(opened, IsOk());
    manifest_ = *std::move(opened);
  }

  // -1: none. -2: an error.
  int64_t Best(std::string_view metric, BestMode mode) {
    auto found = manifest_->FindBest(metric, mode);
    EXPECT_THAT(found, IsOk());
    return !found.ok() ? -2 : found->has_value() ? (*found)->info.step : -1;
  }
  int64_t Lowest(std::string_view metric) { return Best(metric, BestMode::kLowest); }
  int64_t Highest(std::string_view metric) { return Best(metric, BestMode::kHighest); }

  TestDirectory directory_;
  const std::string path_ = directory_ / "index";
  const StoreId store_{{7}};
  std::unique_ptr<Manifest> manifest_;
};

TEST_F(ManifestIndexTest, FindsTheBestOfEachMetric) {
  EXPECT_EQ(Lowest("loss"), -1);
  Commit(RecordWith(1, 1, {{"loss", 3}, {"accuracy", -0.5}}));
  Commit(RecordWith(2, 2, {{"loss", -1}}));
  Commit(RecordWith(3, 3, {{"loss", 2}, {"accuracy", 0.5}}));
  EXPECT_EQ(Lowest("loss"), 2);
  EXPECT_EQ(Highest("loss"), 1);
  EXPECT_EQ(Lowest("accuracy"), 1);
  EXPECT_EQ(Highest("accuracy"), 3);
  EXPECT_EQ(Lowest("los"), -1);
  EXPECT_EQ(Highest("loss2"), -1);
  EXPECT_EQ((*manifest_->FindBest("loss", BestMode::kLowest))->info.metrics.at("loss"), -1);
}

TEST_F(ManifestIndexTest, ListsTheCommittedStepsAlone) {
  const auto committed = [&] {
    auto records = manifest_->Committed();
    EXPECT_THAT(records, IsOk());
    std::vector<int64_t> steps;
    for (const auto& info : *records) steps.push_back(info->step);
    return steps;
  };
  EXPECT_THAT(committed(), testing::IsEmpty());
  EXPECT_EQ(manifest_->LatestCommitted().value(), std::nullopt);
  for (const int64_t step : {300, 2, 10}) Commit(RecordWith(step, static_cast<uint8_t>(step), {}));
  EXPECT_THAT(committed(), testing::ElementsAre(2, 10, 300));
  EXPECT_EQ(manifest_->LatestCommitted().value(), 300);
  SetState(300, StepState::kDeleted);
  SetState(2, StepState::kDamaged);
  EXPECT_THAT(committed(), testing::ElementsAre(10));
  EXPECT_EQ(manifest_->LatestCommitted().value(), 10);
  SetState(2, StepState::kCommitted);
  EXPECT_THAT(committed(), testing::ElementsAre(2, 10));
}

TEST_F(ManifestIndexTest, PrefersTheLaterOfEquals) {
  for (const int64_t step : {30, 10, 20}) Commit(RecordWith(step, static_cast<uint8_t>(step), {{"loss", 1}}));
  Commit(RecordWith(40, 40, {{"zero", -0.0}}));
  Commit(RecordWith(39, 39, {{"zero", 0.0}}));
  EXPECT_EQ(Lowest("loss"), 30);
  EXPECT_EQ(Highest("loss"), 30);
  EXPECT_EQ(Lowest("zero"), 40);
  EXPECT_EQ(Highest("zero"), 40);
}

TEST_F(ManifestIndexTest, NeverTakesNaNOrInfinityForTheBest) {
  Commit(RecordWith(1, 1, {{"loss", kNan}}));
  Commit(RecordWith(2, 2, {{"loss", kInfinity}}));
  Commit(RecordWith(3, 3, {{"loss", -kInfinity}}));
  Commit(RecordWith(4, 4, {{"loss", -kNan}}));
  EXPECT_EQ(Lowest("loss"), -1);
  EXPECT_EQ(Highest("loss"), -1);
  Commit(RecordWith(5, 5, {{"loss", 1e300}}));
  EXPECT_EQ(Lowest("loss"), 5);
  EXPECT_EQ(Highest("loss"), 5);
  EXPECT_TRUE(std::isnan((*manifest_->Find(1))->info.metrics.at("loss")));
}

TEST_F(ManifestIndexTest, PassesOverStepsThatAreNotCommitted) {
  Commit(RecordWith(1, 1, {{"loss", 1}}));
  Commit(RecordWith(2, 2, {{"loss", 2}}));
  for (const StepState state : {StepState::kDamaged, StepState::kLost, StepState::kFailed}) {
    SetState(1, state);
    EXPECT_EQ(Lowest("loss"), 2);
    SetState(1, StepState::kCommitted);
    EXPECT_EQ(Lowest("loss"), 1);
  }
}

TEST_F(ManifestIndexTest, ForgetsTheMetricsOfAReplacedAttempt) {
  Commit(RecordWith(1, 1, {{"loss", 1}, {"gone", 1}}));
  Commit(RecordWith(2, 2, {{"loss", 2}}));
  Commit(RecordWith(1, 3, {{"loss", 3}, {"new", 1}}));
  EXPECT_EQ(Lowest("loss"), 2);
  EXPECT_EQ(Highest("loss"), 1);
  EXPECT_EQ(Highest("gone"), -1);
  EXPECT_EQ(Highest("new"), 1);
}

TEST_F(ManifestIndexTest, KeepsNamesOfAnyBytesApart) {
  const std::string zero("loss\0", 5);
  const std::string inner = MetricKey("loss", -5, 9).substr(std::string_view("metric/").size());
  Commit(RecordWith(1, 1, {{"loss", 1}}));
  Commit(RecordWith(2, 2, {{zero, -1}, {"", -2}, {"loss\x01", -3}}));
  Commit(RecordWith(3, 3, {{"not UTF-8 \xff", 1}, {inner, -4}}));
  EXPECT_EQ(Lowest("loss"), 1);
  EXPECT_EQ(Lowest(zero), 2);
  EXPECT_EQ(Lowest(""), 2);
  // Also removed without a rest, though the record has another name than was given.
  Commit(RecordWith(3, 4, {}));
  size_t keys = 0;
  manifest_.reset();
  auto database = Database::Open(PosixFileSystem(), path_);
  ASSERT_THAT((*database)->Use([&](rocksdb::DB& db) {
    const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
    for (it->Seek("metric/"); it->Valid() && it->key().starts_with("metric/"); it->Next()) ++keys;
    return absl::OkStatus();
  }),
              IsOk());
  EXPECT_EQ(keys, 4u);
}

// Against a scan of all records, after every one of many random changes.
TEST_F(ManifestIndexTest, AgreesWithTheRecordsAfterAnyChanges) {
  const uint32_t seed = SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<uint8_t>(random() % n); };
  const double values[] = {kNan, kInfinity, -kInfinity, 0, -0.0, 1, 2, -1};
  for (int i = 0; i < 300; ++i) {
    StepRecord record = RecordWith(below(10), below(200), {{"loss", values[below(8)]}});
    record.info.state = static_cast<StepState>(below(3));
    if (below(2) == 0) record.references = {{.step = 1, .attempt = AttemptId{{below(5)}}}};
    Commit(record);
    int64_t lowest = -1;
    double value = kInfinity;
    std::map<AttemptId, bool> referenced;
    ASSERT_THAT(manifest_->ForEach([&](const StepRecord& seen) {
      for (const FileReference& file : seen.references) referenced[file.attempt] = true;
      const double loss = seen.info.metrics.at("loss");
      if (seen.info.state == StepState::kCommitted && std::isfinite(loss) && loss <= value) {
        lowest = seen.info.step;
        value = loss;
      }
      return true;
    }),
                IsOk());
    ASSERT_EQ(Lowest("loss"), lowest);
    for (uint8_t attempt = 0; attempt < 5; ++attempt) {
      ASSERT_EQ(*manifest_->IsReferenced(AttemptId{{attempt}}), referenced[AttemptId{{attempt}}]);
    }
  }
}

TEST_F(ManifestIndexTest, KnowsWhatIsReferredToUntilTheLastOneIsGone) {
  const AttemptId base{{9}};
  StepRecord first = RecordWith(1, 1, {});
  first.references = {{.step = 0, .attempt = base}};
  StepRecord second = RecordWith(2, 2, {});
  second.references = first.references;
  EXPECT_FALSE(*manifest_->IsReferenced(base));
  Commit(first);
  Commit(second);
  Commit(RecordWith(1, 3, {}));
  EXPECT_TRUE(*manifest_->IsReferenced(base));
  SetState(2, StepState::kLost);
  EXPECT_TRUE(*manifest_->IsReferenced(base)) << "it may come back";
  Commit(RecordWith(2, 4, {}));
  EXPECT_FALSE(*manifest_->IsReferenced(base));
}

TEST_F(ManifestIndexTest, RefusesKeysThatDoNotAgreeWithTheRecords) {
  Commit(RecordWith(1, 1, {{"loss", 1}}));
  for (const std::string& key : {MetricKey("loss", 0, 1), MetricKey("loss", -1, 77)}) {
    PutKey(key, "");
    EXPECT_THAT(manifest_->FindBest("loss", BestMode::kLowest),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("does not agree with step")));
    EXPECT_TRUE(manifest_->FindBest("loss", BestMode::kHighest)->has_value());
  }
  PutKey(CommittedKey(7), "");
  EXPECT_THAT(manifest_->Committed(), StatusIs(absl::StatusCode::kDataLoss,
                                               HasSubstr("index of committed steps does not agree with step 7's")));
}

TEST_F(ManifestIndexTest, IsNeverSeenHalfChanged) {
  Commit(RecordWith(1, 1, {{"loss", 0}}));
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) EXPECT_EQ(Lowest("loss"), 1);
  });
  for (uint8_t i = 2; i < 60; ++i) Commit(RecordWith(1, i, {{"loss", i}}));
  done = true;
  reader.join();
}

}  // namespace
}  // namespace tidemark::storage
