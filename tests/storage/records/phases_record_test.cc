#include "storage/records/phases_record.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "storage/records/json_fields.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

PhasesRecord FourPhases() {
  PhasesRecord record{.step = 7, .attempt = "02000000000000000000000000000000"};
  record.phases = {{.name = "copy",
                    .lane = "trainer",
                    .begin = absl::Microseconds(10),
                    .duration = absl::Microseconds(20),
                    .busy = absl::Microseconds(20),
                    .bytes = 4096},
                   {.name = "encode",
                    .lane = "codec 1",
                    .begin = absl::Microseconds(12),
                    .duration = absl::Microseconds(8),
                    .busy = absl::Microseconds(5),
                    .bytes = 4096},
                   {.name = "encode",
                    .lane = "codec 1",
                    .begin = absl::Microseconds(30),
                    .duration = absl::Microseconds(1),
                    .busy = absl::Microseconds(1)},
                   {.name = "encode", .lane = "codec 2", .begin = absl::Hours(100), .duration = absl::ZeroDuration()}};
  return record;
}

// What the first version wrote, byte for byte: it must be read for ever.
constexpr std::string_view kVersion1 =
    R"({"attempt":"02000000000000000000000000000000","lanes":[)"
    R"({"lane":"trainer","name":"copy","spans":[[10,20,20,4096]]},)"
    R"({"lane":"codec 1","name":"encode","spans":[[12,8,5,4096],[30,1,1,0]]},)"
    R"({"lane":"codec 2","name":"encode","spans":[[360000000000,0,0,0]]}],"version":1})";

TEST(PhasesRecord, IsReadAndWrittenAsEachVersionHasIt) {
  EXPECT_EQ(EncodePhasesRecord(FourPhases()), kVersion1);
  auto decoded = DecodePhasesRecord(kVersion1);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->attempt, FourPhases().attempt);
  ASSERT_THAT(decoded->phases, SizeIs(4));
  const SavePhase& phase = decoded->phases[1];
  EXPECT_EQ(phase.name, "encode");
  EXPECT_EQ(phase.lane, "codec 1");
  EXPECT_EQ(phase.begin, absl::Microseconds(12));
  EXPECT_EQ(phase.duration, absl::Microseconds(8));
  EXPECT_EQ(phase.busy, absl::Microseconds(5));
  EXPECT_EQ(phase.bytes, 4096u);
  EXPECT_EQ(EncodePhasesRecord(*decoded), kVersion1);
}

TEST(PhasesRecord, CutsEndsOffLikeBeginningsSoThatNothingOverlaps) {
  PhasesRecord record = FourPhases();
  record.phases = {{.name = "a",
                    .lane = "l",
                    .begin = absl::Nanoseconds(1900),
                    .duration = absl::Nanoseconds(1200),
                    .busy = absl::Nanoseconds(1200)},
                   {.name = "a", .lane = "l", .begin = absl::Nanoseconds(3100), .duration = absl::Nanoseconds(800)}};
  auto decoded = DecodePhasesRecord(EncodePhasesRecord(record));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->phases[0].begin, absl::Microseconds(1));
  EXPECT_EQ(decoded->phases[0].duration, absl::Microseconds(2));
  EXPECT_EQ(decoded->phases[0].busy, absl::Microseconds(1));
  EXPECT_EQ(decoded->phases[1].begin, absl::Microseconds(3));
  EXPECT_EQ(decoded->phases[1].duration, absl::ZeroDuration());
}

TEST(PhasesRecord, WritesTimesThatNoClockGivesAsOnesThatCanBeRead) {
  PhasesRecord record = FourPhases();
  record.phases = {{.name = "a",
                    .lane = "l",
                    .begin = -absl::Seconds(1),
                    .duration = absl::InfiniteDuration(),
                    .busy = absl::InfiniteDuration()}};
  auto decoded = DecodePhasesRecord(EncodePhasesRecord(record));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->phases[0].begin, absl::ZeroDuration());
}

TEST(PhasesRecord, MayBeEmpty) {
  auto decoded = DecodePhasesRecord(EncodePhasesRecord({.attempt = FourPhases().attempt}));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_THAT(decoded->phases, IsEmpty());
}

TEST(PhasesRecord, RefusesEachFieldThatIsMissingOrWrong) {
  const nlohmann::json good = ParseJson(kVersion1);
  const auto refused = StatusIs(absl::StatusCode::kDataLoss, HasSubstr("phases record"));
  const auto expect_refused = [&](const std::string& path, const nlohmann::json& value) {
    SCOPED_TRACE(path);
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(path)] = value;
    EXPECT_THAT(DecodePhasesRecord(bad.dump()), refused) << value;
  };
  for (const char* path : {"/version", "/attempt", "/lanes", "/lanes/0", "/lanes/0/name", "/lanes/0/lane",
                           "/lanes/0/spans", "/lanes/0/spans/0", "/lanes/0/spans/0/3"}) {
    for (const auto& value : {nlohmann::json(nullptr), nlohmann::json(-1), nlohmann::json({{"a", 1.5}})}) {
      expect_refused(path, value);
    }
  }
  for (const char* key : {"version", "attempt", "lanes"}) {
    nlohmann::json missing = good;
    missing.erase(key);
    EXPECT_THAT(DecodePhasesRecord(missing.dump()), refused) << key;
  }
  for (const char* key : {"name", "lane", "spans"}) {
    nlohmann::json missing = good;
    missing["lanes"][0].erase(key);
    EXPECT_THAT(DecodePhasesRecord(missing.dump()), refused) << key;
  }
  expect_refused("/lanes/0/spans/0", nlohmann::json({1, 2, 3}));
  expect_refused("/lanes/0/spans/0", nlohmann::json({1, 2, 3, 4, 5}));
}

TEST(PhasesRecord, RefusesTimesOutOfRange) {
  const auto decode = [](const nlohmann::json& span) {
    nlohmann::json record = ParseJson(kVersion1);
    record["lanes"][0]["spans"][0] = span;
    return DecodePhasesRecord(record.dump());
  };
  constexpr int64_t kMax = int64_t{10'000} * 366 * 86400 * 1'000'000;
  EXPECT_THAT(decode({0, kMax, kMax, 0}), IsOk());
  EXPECT_THAT(decode({-1, 1, 1, 0}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("out of its range")));
  EXPECT_THAT(decode({0, kMax + 1, 1, 0}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("out of its range")));
  EXPECT_THAT(decode({1, kMax, 1, 0}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ends beyond")));
  EXPECT_THAT(decode({0, 1, 2, 0}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("busy for longer")));
  EXPECT_THAT(decode({0, 1, 1, -1}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("unsigned")));
  EXPECT_THAT(decode({0.5, 1, 1, 0}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("whole")));
}

TEST(PhasesRecord, RefusesWhatIsNoJsonAndANewerVersion) {
  for (const char* text : {"", "{", "[]", "null", "{\"version\": 0}"}) {
    EXPECT_THAT(DecodePhasesRecord(text), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("phases record")));
  }
  EXPECT_THAT(DecodePhasesRecord("{\"version\": 2}"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("phases record has version 2")));
}

TEST(PhasesKey, SortsLikeTheStep) {
  EXPECT_EQ(PhasesKey(258), std::string("phases/\0\0\0\0\0\0\1\2", 15));
  EXPECT_LT(PhasesKey(255), PhasesKey(256));
}

}  // namespace
}  // namespace tidemark::storage
