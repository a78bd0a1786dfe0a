#include "storage/records/manifest_records.h"

#include <cmath>
#include <limits>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "storage/records/json_fields.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/records/step_record_json.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

StepRecord FullRecord() {
  StepRecord record;
  record.info.step = 1000;
  record.info.state = StepState::kDamaged;
  record.info.attempt = "000102030405060708090a0b0c0d0e0f";
  record.info.sequence = std::numeric_limits<uint64_t>::max();
  record.info.created = absl::FromUnixNanos(1'700'000'000'123'456'789);
  record.info.blocked = absl::Nanoseconds(987654321);
  record.info.world_size = 2;
  record.info.metrics = {{"loss", 0.1},
                         {"nan", std::numeric_limits<double>::quiet_NaN()},
                         {"up", std::numeric_limits<double>::infinity()},
                         {"down", -std::numeric_limits<double>::infinity()}};
  record.info.user_metadata = R"({"a": [1, "\u00e4"]})";
  record.info.entry_count = 12;
  record.info.logical_bytes = uint64_t{1} << 40;
  record.info.stored_bytes = 77;
  record.info.reused_bytes = 5;
  record.info.reason = "bit rot";
  record.info.pinned = true;
  record.info.pin_note = "the paper's";
  record.info.kept = "among the latest 3";
  record.info.evaluations = {{.evaluator = "validation",
                              .worker = "trainer",
                              .outcome = Evaluation::Outcome::kFailed,
                              .reason = "it threw",
                              .metrics = {{"loss", std::numeric_limits<double>::infinity()}},
                              .unhealthy = "loss is not finite",
                              .reported = absl::FromUnixNanos(1'700'000'001'123'456'789),
                              .took = absl::Nanoseconds(123)},
                             {.evaluator = "z"}};
  record.shards.Add(0, 4096, Digest128{{1, 2, 3}});
  record.shards.Add(1, 8192, {});
  record.references = {{.step = 900, .attempt = AttemptId{{9}}, .rank = 1, .world_size = 2}};
  return record;
}

TEST(StepRecord, SurvivesEncodingExactly) {
  const StepRecord record = FullRecord();
  auto decoded = DecodeStepRecord(EncodeStepRecord(record));
  ASSERT_THAT(decoded, IsOk());
  const StepInfo& info = decoded->info;
  EXPECT_EQ(info.step, record.info.step);
  EXPECT_EQ(info.state, record.info.state);
  EXPECT_EQ(info.attempt, record.info.attempt);
  EXPECT_EQ(info.sequence, record.info.sequence);
  EXPECT_EQ(info.created, record.info.created);
  EXPECT_EQ(info.blocked, record.info.blocked);
  EXPECT_EQ(info.world_size, record.info.world_size);
  EXPECT_EQ(info.metrics.at("loss"), 0.1);
  EXPECT_TRUE(std::isnan(info.metrics.at("nan")));
  EXPECT_EQ(info.metrics.at("up"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(info.metrics.at("down"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(info.user_metadata, record.info.user_metadata);
  EXPECT_EQ(info.entry_count, record.info.entry_count);
  EXPECT_EQ(info.logical_bytes, record.info.logical_bytes);
  EXPECT_EQ(info.stored_bytes, record.info.stored_bytes);
  EXPECT_EQ(info.reused_bytes, record.info.reused_bytes);
  EXPECT_EQ(info.reason, record.info.reason);
  EXPECT_TRUE(info.pinned);
  EXPECT_EQ(info.pin_note, record.info.pin_note);
  EXPECT_EQ(info.kept, record.info.kept);
  ASSERT_EQ(info.evaluations.size(), 2u);
  const Evaluation& row = info.evaluations[0];
  const Evaluation& expected = record.info.evaluations[0];
  EXPECT_EQ(row.evaluator, expected.evaluator);
  EXPECT_EQ(row.worker, expected.worker);
  EXPECT_EQ(row.outcome, expected.outcome);
  EXPECT_EQ(row.reason, expected.reason);
  EXPECT_EQ(row.metrics, expected.metrics);
  EXPECT_EQ(row.unhealthy, expected.unhealthy);
  EXPECT_EQ(row.reported, expected.reported);
  EXPECT_EQ(row.took, expected.took);
  EXPECT_EQ(decoded->shards, record.shards);
  EXPECT_EQ(decoded->references, record.references);
}

// Every field may be missing, or be of a type that it must not have.
TEST(StepRecord, RefusesEachFieldThatIsMissingOrWrong) {
  const nlohmann::json good = ParseJson(EncodeStepRecord(FullRecord()));
  for (const auto& [key, value] : good.items()) {
    SCOPED_TRACE(key);
    nlohmann::json missing = good;
    missing.erase(key);
    EXPECT_THAT(DecodeStepRecord(missing.dump()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step record")));
    nlohmann::json wrong = good;
    wrong[key] = nlohmann::json::array({nullptr});
    EXPECT_THAT(DecodeStepRecord(wrong.dump()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step record")));
  }
}

TEST(StepRecord, RefusesNumbersOutOfRangeAndUnknownStates) {
  const nlohmann::json good = ParseJson(EncodeStepRecord(FullRecord()));
  const auto expect_refused = [&](const char* key, nlohmann::json value, const char* why) {
    nlohmann::json bad = good;
    bad[key] = std::move(value);
    EXPECT_THAT(DecodeStepRecord(bad.dump()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why)));
  };
  expect_refused("step", -1, "a step is not a number >= 0");
  expect_refused("stored_bytes", -1, "not an unsigned number");
  expect_refused("world_size", uint64_t{1} << 32, "4294967296 is too large");
  expect_refused("state", "excellent", "state 'excellent' is unknown");
  expect_refused("attempt", "123", "32 hexadecimal digits");
  expect_refused("metrics", nlohmann::json{{"loss", "big"}}, "'big' is not a number");
  expect_refused("metrics", nullptr, "metrics are not an object");
  expect_refused("evaluations", nullptr, "evaluations are not an array");
  expect_refused("pinned", 1, "type must be boolean");
}

TEST(StepRecord, RefusesAnEvaluationThatLacksAFieldOrHasAWrongOne) {
  const nlohmann::json good = ParseJson(EncodeStepRecord(FullRecord()));
  for (const auto& [key, value] : good["evaluations"][0].items()) {
    SCOPED_TRACE(key);
    nlohmann::json missing = good;
    missing["evaluations"][0].erase(key);
    EXPECT_THAT(DecodeStepRecord(missing.dump()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(key)));
    nlohmann::json wrong = good;
    wrong["evaluations"][0][key] = nlohmann::json::array({nullptr});
    EXPECT_THAT(DecodeStepRecord(wrong.dump()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step record")));
  }
  nlohmann::json bad = good;
  bad["evaluations"][0]["outcome"] = "maybe";
  EXPECT_THAT(DecodeStepRecord(bad.dump()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("outcome 'maybe' is unknown")));
}

TEST(StepRecord, OfVersionOneHasNoEvaluationsAndNoPin) {
  nlohmann::json old = ParseJson(EncodeStepRecord(FullRecord()));
  old["version"] = 1;
  for (const char* key : {"evaluations", "pinned", "pin_note", "kept", "shards_digest"}) old.erase(key);
  old["shards"] = nlohmann::json::array();
  auto decoded = DecodeStepRecord(old.dump());
  ASSERT_THAT(decoded, IsOk());
  EXPECT_THAT(decoded->info.evaluations, IsEmpty());
  EXPECT_FALSE(decoded->info.pinned);
  EXPECT_EQ(decoded->info.reason, "bit rot");
}

TEST(StepRecord, HasTagsOnlyWhereThereAreAny) {
  StepRecord record = FullRecord();
  const std::string untagged = EncodeStepRecord(record);
  EXPECT_THAT(untagged, Not(HasSubstr("tags")));
  EXPECT_THAT(DecodeStepRecord(untagged)->info.tags, IsEmpty());
  record.info.tags = {"paper", "v1"};
  const std::string tagged = EncodeStepRecord(record);
  EXPECT_THAT(tagged, HasSubstr(R"("stored_bytes":77,"tags":["paper","v1"],"user_metadata")"));
  EXPECT_THAT(DecodeStepRecord(tagged)->info.tags, ElementsAre("paper", "v1"));
  EXPECT_EQ(EncodeStepRecord(*DecodeStepRecord(tagged)), tagged);
  MakeDeleted(record, "too old");
  EXPECT_THAT(record.info.tags, IsEmpty());
}

TEST(StepRecord, RefusesTagsThatNobodyCouldHaveGiven) {
  const nlohmann::json good = ParseJson(EncodeStepRecord(FullRecord()));
  const auto expect_refused = [&](const nlohmann::json& tags, const char* why, bool pinned = true) {
    nlohmann::json bad = good;
    bad["tags"] = tags;
    bad["pinned"] = pinned;
    EXPECT_THAT(DecodeStepRecord(bad.dump()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why))) << tags;
  };
  expect_refused(nullptr, "tags are not an array");
  expect_refused("v1", "tags are not an array");
  expect_refused({1}, "type must be string");
  expect_refused({""}, "a tag is empty");
  expect_refused({"no name"}, "tag 'no name' has a character other than letters");
  expect_refused({"v1", "v1"}, "tags are not in ascending order without repetition");
  expect_refused({"v2", "v1"}, "tags are not in ascending order without repetition");
  expect_refused({"v1"}, "it has tags but is not pinned", /*pinned=*/false);
  nlohmann::json many = nlohmann::json::array();
  for (int i = 0; i < 65; ++i) many.push_back(fmt::format("{:02}", i));
  expect_refused(many, "65 tags; at most 64");
  nlohmann::json none = good;
  none["tags"] = nlohmann::json::array();
  EXPECT_THAT(DecodeStepRecord(none.dump()), IsOk());
}

TEST(StepRecord, NeedsNoAttemptWhereTheStepFailedOrWasOnlyEvaluated) {
  StepRecord record;
  for (const StepState state : {StepState::kFailed, StepState::kUnsaved}) {
    record.info.state = state;
    auto decoded = DecodeStepRecord(EncodeStepRecord(record));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->info.state, state);
  }
  for (const StepState state : {StepState::kCommitted, StepState::kDamaged, StepState::kLost, StepState::kDeleted}) {
    record.info.state = state;
    EXPECT_THAT(DecodeStepRecord(EncodeStepRecord(record)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("32 hexadecimal digits")));
  }
}

TEST(Records, RefuseWhatIsNoJsonAndANewerVersion) {
  for (const char* text : {"", "{", "[]", "null", "{\"version\": 0}"}) {
    EXPECT_THAT(DecodeStepRecord(text), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step record")));
    EXPECT_THAT(DecodeStoreRecord(text), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("store record")));
    EXPECT_THAT(DecodeDeletionRecord(text), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("deletion record")));
  }
  for (const absl::Status& status :
       {DecodeStoreRecord("{\"version\": 4}").status(), DecodeStepRecord("{\"version\": 4}").status(),
        DecodeDeletionRecord("{\"version\": 3}").status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented,
                                 AllOf(HasSubstr("record has version "), HasSubstr("this library reads up to"))));
  }
}

TEST(StoreRecord, SurvivesEncoding) {
  auto decoded = DecodeStoreRecord(EncodeStoreRecord({.store_id = StoreId{{1, 2}}, .sequence = 42}));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->store_id, (StoreId{{1, 2}}));
  EXPECT_EQ(decoded->sequence, 42u);
  EXPECT_EQ(decoded->version, kStoreRecordVersion);
}

TEST(DeletionRecord, SurvivesEncoding) {
  auto decoded = DecodeDeletionRecord(
      EncodeDeletionRecord({.step = 7, .attempt = AttemptId{{3}}, .references = {AttemptId{{1}}, AttemptId{{2}}}}));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->step, 7);
  EXPECT_EQ(decoded->attempt, (AttemptId{{3}}));
  EXPECT_THAT(decoded->references, ElementsAre(AttemptId{{1}}, AttemptId{{2}}));
}

TEST(DeletionRecord, OfVersionOneHasNoReferences) {
  auto decoded = DecodeDeletionRecord(R"({"version": 1, "step": 7, "attempt": "03000000000000000000000000000000"})");
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->attempt, (AttemptId{{3}}));
  EXPECT_THAT(decoded->references, IsEmpty());
}

TEST(DeletionOf, NamesTheAttemptAndWhatItRefersTo) {
  const auto deletion = DeletionOf(FullRecord());
  ASSERT_TRUE(deletion.has_value());
  EXPECT_EQ(deletion->step, 1000);
  EXPECT_EQ(ToHex(deletion->attempt.bytes), FullRecord().info.attempt);
  EXPECT_THAT(deletion->references, ElementsAre(AttemptId{{9}}));
}

TEST(DeletionOf, IsNothingForAStepWithoutFilesOrOneThatIsMarked) {
  StepRecord record = FullRecord();
  record.info.state = StepState::kDeleted;
  EXPECT_FALSE(DeletionOf(record).has_value());
  record.info.state = StepState::kFailed;
  record.info.attempt.clear();
  EXPECT_FALSE(DeletionOf(record).has_value());
}

TEST(StepKey, SortsLikeTheStep) {
  const int64_t steps[] = {0, 1, 255, 256, 65535, 1 << 20, int64_t{1} << 40, std::numeric_limits<int64_t>::max()};
  for (size_t i = 1; i < std::size(steps); ++i) EXPECT_LT(StepKey(steps[i - 1]), StepKey(steps[i]));
}

// What libraries have written, byte for byte: it must be read for ever, and this one must write the last of each.
constexpr std::string_view kStoreOfVersion2 =
    R"({"sequence":42,"store_id":"01000000000000000000000000000000","version":2})";
constexpr std::string_view kStoreOfVersion3 =
    R"({"sequence":42,"store_id":"01000000000000000000000000000000","version":3})";
constexpr std::string_view kStepOfVersion1 =
    R"({"attempt":"02000000000000000000000000000000","blocked_ns":5,"created_unix_ns":6,"entry_count":7,)"
    R"("logical_bytes":8,"metrics":{"loss":0.5},"reason":"r","references":[{"attempt":)"
    R"("03000000000000000000000000000000","rank":0,"step":9,"world_size":1}],"reused_bytes":10,"sequence":11,)"
    R"("shards":[{"file_bytes":12,"index_digest":"04000000000000000000000000000000","rank":0}],"state":"lost",)"
    R"("step":13,"stored_bytes":14,"user_metadata":"{}","version":1,"world_size":1})";
constexpr std::string_view kStepOfVersion2 =
    R"({"attempt":"02000000000000000000000000000000","blocked_ns":5,"created_unix_ns":6,"entry_count":7,)"
    R"("evaluations":[{"evaluator":"e","metrics":{"loss":"NaN"},"outcome":"skipped","reason":"s",)"
    R"("reported_unix_ns":15,"took_ns":16,"unhealthy":"u","worker":"w"}],"kept":"k","logical_bytes":8,)"
    R"("metrics":{"e/loss":"NaN","loss":0.5},"pin_note":"n","pinned":true,"reason":"r","references":[{"attempt":)"
    R"("03000000000000000000000000000000","rank":0,"step":9,"world_size":1}],"reused_bytes":10,"sequence":11,)"
    R"("shards":[{"file_bytes":12,"index_digest":"04000000000000000000000000000000","rank":0}],"state":"lost",)"
    R"("step":13,"stored_bytes":14,"user_metadata":"{}","version":2,"world_size":1})";
constexpr std::string_view kStepOfVersion3 =
    R"({"attempt":"02000000000000000000000000000000","blocked_ns":5,"created_unix_ns":6,"entry_count":7,)"
    R"("evaluations":[{"evaluator":"e","metrics":{"loss":"NaN"},"outcome":"skipped","reason":"s",)"
    R"("reported_unix_ns":15,"took_ns":16,"unhealthy":"u","worker":"w"}],"kept":"k","logical_bytes":8,)"
    R"("metrics":{"e/loss":"NaN","loss":0.5},"pin_note":"n","pinned":true,"reason":"r","references":[{"attempt":)"
    R"("03000000000000000000000000000000","rank":0,"step":9,"world_size":1}],"reused_bytes":10,"sequence":11,)"
    R"("shards_digest":"08d4660c60f32cd93c798eeae53266b5","state":"lost",)"
    R"("step":13,"stored_bytes":14,"user_metadata":"{}","version":3,"world_size":1})";
constexpr std::string_view kDeletionOfVersion2 =
    R"({"attempt":"02000000000000000000000000000000","references":["03000000000000000000000000000000"],"step":13,)"
    R"("version":2})";

TEST(Records, AreReadAndWrittenAsEachVersionHasThem) {
  auto store = DecodeStoreRecord(kStoreOfVersion2);
  ASSERT_THAT(store, IsOk());
  EXPECT_EQ(store->version, 2);
  EXPECT_EQ(EncodeStoreRecord({.store_id = store->store_id, .sequence = store->sequence}), kStoreOfVersion3);
  auto old = DecodeStepRecord(kStepOfVersion1);
  ASSERT_THAT(old, IsOk());
  auto step = DecodeStepRecord(kStepOfVersion2);
  ASSERT_THAT(step, IsOk());
  EXPECT_EQ(EncodeStepRecord(*step), kStepOfVersion3);
  old->info.metrics["e/loss"] = std::nan("");
  old->info.evaluations = step->info.evaluations;
  old->info.pinned = true;
  old->info.pin_note = "n";
  old->info.kept = "k";
  EXPECT_EQ(EncodeStepRecord(*old), kStepOfVersion3);
  auto newest = DecodeStepRecord(kStepOfVersion3);
  ASSERT_THAT(newest, IsOk());
  EXPECT_EQ(EncodeStepRecord(*newest), kStepOfVersion3);
  auto deletion = DecodeDeletionRecord(kDeletionOfVersion2);
  ASSERT_THAT(deletion, IsOk());
  EXPECT_EQ(EncodeDeletionRecord(*deletion), kDeletionOfVersion2);
}

}  // namespace
}  // namespace tidemark::storage
