// How the manifest finds steps by a metric and by what they refer to, and that its indices follow every change.

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
#include "nlohmann/json.hpp"
#include "rocksdb/write_batch.h"
#include "storage/manifest/database.h"
#include "storage/manifest/index_keys.h"
#include "storage/manifest/manifest.h"
#include "storage/records/json_fields.h"
#include "tests/non_finite.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/made_records.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
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

  void Commit(const StepRecord& record) { EXPECT_THAT(manifest_->Commit(record), IsOk()); }

  void SetState(int64_t step, StepState state) {
    StepRecord record = **manifest_->Find(step);
    record.info.state = state;
    EXPECT_THAT(manifest_->Update(record), IsOk());
  }

  // -1: none. -2: an error.
  int64_t Best(std::string_view metric, BestMode mode) {
    auto found = manifest_->FindBest(metric, mode);
    EXPECT_THAT(found, IsOk());
    return !found.ok() ? -2 : found->has_value() ? (*found)->info.step : -1;
  }
  int64_t Lowest(std::string_view metric) { return Best(metric, BestMode::kLowest); }
  int64_t Highest(std::string_view metric) { return Best(metric, BestMode::kHighest); }

  // Takes the indices away and makes the store's record one of version 1.
  void MakeOld() {
    manifest_.reset();
    auto database = Database::Open(PosixFileSystem(), path_);
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch;
    batch.DeleteRange("metric/", "metric0");
    batch.DeleteRange("reference/", "reference0");
    batch.DeleteRange("committed/", "committed0");
    batch.Put("store", EncodeStoreRecord({.store_id = store_, .sequence = 9, .version = 1}));
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "manifest";
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
  MakeOld();
  auto old = Manifest::OpenReadOnly(PosixFileSystem(), path_);
  ASSERT_THAT(old, IsOk());
  EXPECT_THAT((*old)->Committed(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no index of committed steps")));
  EXPECT_THAT((*old)->LatestCommitted(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("gets one when")));
  old->reset();
  auto again = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(again, IsOk());
  manifest_ = *std::move(again);
  EXPECT_THAT(committed(), testing::ElementsAre(2, 10));
}

TEST_F(ManifestIndexTest, ReportsAnIndexOfCommittedStepsThatDoesNotAgree) {
  Commit(RecordWith(1, 1, {}));
  manifest_.reset();
  {
    auto database = Database::Open(PosixFileSystem(), path_);
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch;
    batch.Put(CommittedKey(7), "");
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  auto opened = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(opened, IsOk());
  manifest_ = *std::move(opened);
  EXPECT_THAT(manifest_->Committed(), StatusIs(absl::StatusCode::kDataLoss,
                                               HasSubstr("index of committed steps does not agree with step 7's")));
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
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<uint8_t>(random() % n); };
  const double values[] = {kNan, kInfinity, -kInfinity, 0, -0.0, 1, 2, -1};
  for (int i = 0; i < 300; ++i) {
    StepRecord record = RecordWith(below(10), below(200), {{"loss", values[below(8)]}});
    record.info.state = static_cast<StepState>(below(3));
    if (below(2) == 0) record.references = {{.step = 1, .attempt = AttemptId{{below(5)}}}};
    if (below(2) == 0) {
      Commit(record);
    } else {
      ASSERT_THAT(manifest_->Update(record), IsOk());
    }
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

TEST_F(ManifestIndexTest, IsMadeForAManifestThatHasNone) {
  Commit(RecordWith(1, 1, {{"loss", 1}}));
  StepRecord lost = RecordWith(2, 2, {{"loss", 0}});
  lost.info.state = StepState::kLost;
  lost.references = {{.step = 1, .attempt = AttemptId{{1}}}};
  Commit(lost);
  MakeOld();
  {
    auto reader = Manifest::OpenReadOnly(PosixFileSystem(), path_);
    ASSERT_THAT(reader, IsOk());
    EXPECT_TRUE((*reader)->Find(1)->has_value());
    const auto refused =
        StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr(path_), HasSubstr("no indices")));
    EXPECT_THAT((*reader)->FindBest("loss", BestMode::kLowest), refused);
    EXPECT_THAT((*reader)->IsReferenced(AttemptId{{1}}), refused);
  }
  for (int i = 0; i < 2; ++i) {
    auto opened = Manifest::Open(PosixFileSystem(), path_);
    ASSERT_THAT(opened, IsOk());
    manifest_ = *std::move(opened);
    EXPECT_EQ(manifest_->last_sequence(), 9u);
    EXPECT_EQ(Lowest("loss"), 1);
    EXPECT_TRUE(*manifest_->IsReferenced(AttemptId{{1}}));
    manifest_.reset();
  }
}

TEST_F(ManifestIndexTest, IsKeptThroughTheStepFromVersionTwoToThree) {
  Commit(RecordWith(1, 1, {{"loss", 1}}));
  manifest_.reset();
  const auto version = [&] {
    std::string text;
    auto database = Database::OpenReadOnly(PosixFileSystem(), path_);
    EXPECT_THAT(database, IsOk());
    EXPECT_THAT((*database)->Use([&](rocksdb::DB& db) {
      EXPECT_TRUE(db.Get({}, "store", &text).ok());
      return absl::OkStatus();
    }),
                IsOk());
    return DecodeStoreRecord(text)->version;
  };
  {
    auto database = Database::Open(PosixFileSystem(), path_);
    rocksdb::WriteBatch batch;
    batch.Put("store", EncodeStoreRecord({.store_id = store_, .sequence = 9, .version = 2}));
    batch.DeleteRange("committed/", "committed0");
    nlohmann::json record = ParseJson(EncodeStepRecord(RecordWith(1, 1, {{"loss", 1}})));
    record["version"] = 1;
    for (const char* field : {"evaluations", "pinned", "pin_note", "kept"}) record.erase(field);
    batch.Put(StepKey(1), record.dump());
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  {
    auto reader = Manifest::OpenReadOnly(PosixFileSystem(), path_);
    ASSERT_THAT(reader, IsOk());
    EXPECT_EQ((*(*reader)->FindBest("loss", BestMode::kLowest))->info.step, 1);
    EXPECT_THAT((*reader)->Committed(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("committed steps")));
  }
  EXPECT_EQ(version(), 2) << "a reader writes nothing";
  {
    auto opened = Manifest::Open(PosixFileSystem(), path_);
    ASSERT_THAT(opened, IsOk());
    EXPECT_EQ((*opened)->last_sequence(), 9u);
    EXPECT_EQ((*(*opened)->FindBest("loss", BestMode::kLowest))->info.step, 1);
    const auto committed = (*opened)->Committed();
    ASSERT_THAT(committed, IsOk());
    ASSERT_EQ(committed->size(), 1u);
    EXPECT_EQ(committed->front()->step, 1);
    EXPECT_EQ(**(*opened)->LatestCommitted(), 1);
  }
  EXPECT_EQ(version(), 3);
}

// A store may have thousands of steps behind it that were only evaluated.
TEST_F(ManifestIndexTest, TheLatestCommittedStepIsFoundWithoutTheRecordsBehindIt) {
  Commit(RecordWith(1, 1, {}));
  manifest_.reset();
  {
    auto database = Database::Open(PosixFileSystem(), path_);
    rocksdb::WriteBatch batch;
    batch.Put(StepKey(2), "{");
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  auto manifest = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT((*manifest)->FindAtOrBelow(INT64_MAX),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step record of 1 bytes")));
  const auto latest = (*manifest)->FindCommittedAtOrBelow(INT64_MAX);
  ASSERT_THAT(latest, IsOk());
  EXPECT_EQ((*latest)->info.step, 1);
}

TEST_F(ManifestIndexTest, SaysThatARecordCannotBeIndexed) {
  MakeOld();
  {
    auto database = Database::Open(PosixFileSystem(), path_);
    rocksdb::WriteBatch batch;
    batch.Put(StepKey(1), "{");
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step record")));
}

TEST_F(ManifestIndexTest, RefusesAnIndexThatDoesNotAgreeWithTheRecord) {
  Commit(RecordWith(1, 1, {{"loss", 1}}));
  manifest_.reset();
  for (const std::string& key : {MetricKey("loss", 0, 1), MetricKey("loss", -1, 77)}) {
    {
      auto database = Database::Open(PosixFileSystem(), path_);
      rocksdb::WriteBatch batch;
      batch.Put(key, "");
      ASSERT_THAT((*database)->Write(batch), IsOk());
    }
    auto manifest = Manifest::Open(PosixFileSystem(), path_);
    ASSERT_THAT(manifest, IsOk());
    EXPECT_THAT((*manifest)->FindBest("loss", BestMode::kLowest),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("does not agree with step")));
    EXPECT_TRUE((*manifest)->FindBest("loss", BestMode::kHighest)->has_value());
  }
}

TEST_F(ManifestIndexTest, IsMadeAnewWhereItDoesNotAgreeWithTheRecords) {
  StepRecord record = RecordWith(1, 1, {{"loss", 1}});
  record.references = {{.step = 0, .attempt = AttemptId{{9}}}};
  Commit(record);
  Commit(RecordWith(2, 2, {{"loss", 2}}));
  manifest_.reset();
  {
    auto database = Database::Open(PosixFileSystem(), path_);
    rocksdb::WriteBatch batch;
    for (const std::string& key : {MetricKey("loss", 0, 1), CommittedKey(77), ReferencePrefix({{8}}) + "12345678"}) {
      batch.Put(key, "");
    }
    for (const std::string& key : IndexKeys(record)) batch.Delete(key);
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  auto manifest = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT((*manifest)->Committed(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("does not agree")));
  EXPECT_EQ(*(*manifest)->RepairIndices(), 6u);
  EXPECT_EQ((*manifest)->Committed()->size(), 2u);
  EXPECT_EQ((*(*manifest)->FindBest("loss", BestMode::kLowest))->info.step, 1);
  EXPECT_TRUE(*(*manifest)->IsReferenced(AttemptId{{9}}));
  EXPECT_FALSE(*(*manifest)->IsReferenced(AttemptId{{8}}));
  EXPECT_EQ(*(*manifest)->RepairIndices(), 0u);
}

TEST_F(ManifestIndexTest, IsNotMadeAnewFromADamagedRecord) {
  Commit(RecordWith(1, 1, {{"loss", 1}}));
  manifest_.reset();
  {
    auto database = Database::Open(PosixFileSystem(), path_);
    rocksdb::WriteBatch batch;
    batch.Put(StepKey(1), "{");
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  auto manifest = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_THAT((*manifest)->RepairIndices(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step record")));
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
