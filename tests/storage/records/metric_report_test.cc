#include "storage/records/metric_report.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "storage/records/json_fields.h"
#include "tests/non_finite.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/records/checked_object.h"
#include "tests/storage/store/first_format/written_files.h"
#include "tidemark/entry.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;

MetricReport MakeReport() {
  return {.store = StoreId{{1, 2}},
          .step = 1000,
          .attempt = AttemptId{{3, 4}},
          .evaluation = {.evaluator = "validation",
                         .worker = "pid 7 on node-3",
                         .outcome = Evaluation::Outcome::kFailed,
                         .reason = "no data:\n\"x\"",
                         .metrics = {{"loss", 0.1}, {"nan", kNan}, {"up", kInfinity}, {"down", -kInfinity}},
                         .unhealthy = "NaN in größe",
                         .reported = absl::FromUnixNanos(1'700'000'000'123'456'789),
                         .took = absl::Nanoseconds(987654321)}};
}

nlohmann::json GoodReport() {
  nlohmann::json object = ParseJson(EncodeMetricReport(MakeReport()));
  object.erase("check");
  return object;
}

TEST(MetricReport, SurvivesEncodingExactly) {
  const MetricReport report = MakeReport();
  auto decoded = DecodeMetricReport(EncodeMetricReport(report));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->store, report.store);
  EXPECT_EQ(decoded->step, 1000);
  EXPECT_EQ(decoded->attempt, report.attempt);
  const Evaluation& evaluation = decoded->evaluation;
  EXPECT_EQ(evaluation.evaluator, "validation");
  EXPECT_EQ(evaluation.worker, "pid 7 on node-3");
  EXPECT_EQ(evaluation.outcome, Evaluation::Outcome::kFailed);
  EXPECT_EQ(evaluation.reason, "no data:\n\"x\"");
  EXPECT_EQ(evaluation.metrics.size(), 4u);
  EXPECT_EQ(evaluation.metrics.at("loss"), 0.1);
  EXPECT_TRUE(std::isnan(evaluation.metrics.at("nan")));
  EXPECT_EQ(evaluation.metrics.at("up"), kInfinity);
  EXPECT_EQ(evaluation.metrics.at("down"), -kInfinity);
  EXPECT_EQ(evaluation.unhealthy, "NaN in größe");
  EXPECT_EQ(evaluation.reported, report.evaluation.reported);
  EXPECT_EQ(evaluation.took, report.evaluation.took);
}

TEST(ValidateEvaluation, RefusesEachViolation) {
  const auto expect_refused = [](const Evaluation& evaluation, const std::string& why) {
    EXPECT_THAT(ValidateEvaluation(evaluation), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  expect_refused({.evaluator = ""}, "has 0 bytes; it must have 1 to 256");
  expect_refused({.evaluator = std::string(257, 'a')}, "aaa...' has 257 bytes; it must have 1 to 256");
  expect_refused({.evaluator = "a\xff"}, "the evaluator's name 'a\\xff' is not UTF-8");
  for (const char* name : {"a\n", "\x1b[m", "\x7f", "a\xc2\x80", "\xc2\x9f"}) {
    expect_refused({.evaluator = name}, "has a control character");
  }
  expect_refused({.evaluator = "a\x1b[m"}, "the evaluator's name 'a\\x1b[m' has a control character");
  expect_refused({.evaluator = "a/b"}, "the evaluator's name 'a/b' has a '/'");
  expect_refused({.evaluator = "a", .metrics = {{"", 1}}},
                 "evaluator 'a': the metric's name '' has 0 bytes; it must have 1 to 4096");
  expect_refused({.evaluator = "a", .metrics = {{std::string(EntrySpec::kNameBytesMax + 1, 'm'), 1}}},
                 "evaluator 'a': the metric's name '" + std::string(64, 'm') + "...' has 4097 bytes");
  expect_refused({.evaluator = "a", .metrics = {{"\xc3", 1}}}, "evaluator 'a': the metric's name '\\xc3' is not UTF-8");
  EXPECT_THAT(ValidateEvaluation({.evaluator = std::string(256, 'a'), .metrics = {{"a/b\n", 1}}}), IsOk());
  EXPECT_THAT(ValidateEvaluation({.evaluator = "größe \xc2\xa0"}), IsOk());
}

// Every field may be missing, or be of a type that it must not have, under a check that is right.
TEST(MetricReport, RefusesEachFieldThatIsMissingOrWrong) {
  const nlohmann::json good = GoodReport();
  for (const auto& [key, value] : good.items()) {
    SCOPED_TRACE(key);
    nlohmann::json missing = good;
    missing.erase(key);
    EXPECT_THAT(DecodeMetricReport(WithCheck(missing.dump())), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(key)));
    nlohmann::json wrong = good;
    wrong[key] = nlohmann::json::array({nullptr});
    EXPECT_THAT(DecodeMetricReport(WithCheck(wrong.dump())),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("metric report of")));
  }
}

TEST(MetricReport, RefusesValuesOutOfTheirRange) {
  const auto expect_refused = [](const char* key, nlohmann::json value, const char* why) {
    nlohmann::json bad = GoodReport();
    bad[key] = std::move(value);
    EXPECT_THAT(DecodeMetricReport(WithCheck(bad.dump())), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why)));
  };
  expect_refused("version", 0, "version 0 never existed");
  expect_refused("step", -1, "a step is not a number >= 0");
  expect_refused("step", 1.5, "a step is not a number >= 0");
  expect_refused("step", ~uint64_t{0}, "a step is not a number >= 0");
  expect_refused("store", "123", "32 hexadecimal digits");
  expect_refused("attempt", std::string(32, 'G'), "32 hexadecimal digits");
  expect_refused("outcome", "excellent", "outcome 'excellent' is unknown");
  expect_refused("metrics", {{"loss", "big"}}, "'big' is not a number");
  expect_refused("metrics", {{"loss", nullptr}}, "null is not a number");
  expect_refused("metrics", {{"", 1}}, "the metric's name '' has 0 bytes");
  expect_refused("took_ns", -1, "took_ns is negative");
  expect_refused("took_ns", 0.5, "a number is not whole");
  expect_refused("reported_unix_ns", uint64_t{1} << 63, "9223372036854775808 is too large");
  expect_refused("evaluator", "a/b", "has a '/'");
  expect_refused("evaluator", "a\nb", "has a control character");
  expect_refused("evaluator", std::string(257, 'a'), "has 257 bytes");
}

TEST(MetricReport, RefusesWhatIsNoStrictJson) {
  const auto expect_refused = [](const std::string& object, const char* why) {
    EXPECT_THAT(DecodeMetricReport(WithCheck(object)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why))) << object;
  };
  const std::string good = GoodReport().dump();
  const auto with = [&](const std::string& field) { return "{" + field + "," + good.substr(1); };
  expect_refused(with(R"("step":7)"), "'step' occurs twice");
  expect_refused(with(R"("metrics":{"a":1,"a":2})"), "'a' occurs twice");
  expect_refused(with(R"("check":"0")"), "'check' occurs twice");
  expect_refused(with("\"x\":\"\xff\""), "ill-formed UTF-8");
  expect_refused(with("\"x\":\"\n\""), "control character");
  expect_refused(with("\"x\":1e999"), "number overflow");
  expect_refused(with("\"x\":NaN"), "parse error");
  expect_refused(good.substr(0, good.size() - 1) + "}}", "parse error");
  expect_refused(std::string("{\0}", 3), "parse error");
  for (const char* text : {"{}", "[]", "\"\"", "  "}) expect_refused(text, "metric report of");
}

TEST(MetricReport, RefusesWhatNestsWithoutEnd) {
  const auto nested = [](size_t depth) {
    const std::string good = GoodReport().dump();
    return WithCheck("{\"x\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "," + good.substr(1));
  };
  EXPECT_THAT(DecodeMetricReport(nested(4)), IsOk());
  for (size_t depth : {5, 100'000, 500'000}) {
    EXPECT_THAT(DecodeMetricReport(nested(depth)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("it is nested deeper than 4")));
  }
}

TEST(MetricReport, RefusesWhatIsTooLargeBeforeItLooks) {
  EXPECT_THAT(DecodeMetricReport(std::string(kMetricReportBytesMax + 1, '[')),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("1048577 bytes, where at most 1048576")));
}

TEST(MetricReport, RefusesANewerVersionOnlyWhereTheCheckHolds) {
  nlohmann::json newer = {{"version", 2}};
  EXPECT_THAT(DecodeMetricReport(WithCheck(newer.dump())),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("metric report has version 2")));
  std::string flipped = EncodeMetricReport(MakeReport());
  flipped.replace(flipped.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_THAT(DecodeMetricReport(flipped),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("its check does not match")));
}

TEST(MetricReport, RefusesEveryTruncationAndExtension) {
  const std::string bytes = EncodeMetricReport(MakeReport());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeMetricReport(bytes.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("check")))
        << size;
  }
  EXPECT_THAT(DecodeMetricReport(bytes + "\n"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("check")));
}

TEST(MetricReport, RefusesEveryFlippedBitAndManyRandomChanges) {
  const std::string bytes = EncodeMetricReport(MakeReport());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_THAT(DecodeMetricReport(changed), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("check"))) << bit;
  }
  const auto seed = SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = bytes;
    for (uint32_t left = 1 + random() % 8; left > 0; --left)
      changed[random() % bytes.size()] = static_cast<char>(random());
    if (changed == bytes) continue;
    EXPECT_THAT(DecodeMetricReport(changed), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("check"))) << changed;
  }
}

// The same under a check that is right: whatever is accepted can be written and read again.
TEST(MetricReport, SurvivesRandomChangesUnderAValidCheck) {
  const std::string object = GoodReport().dump();
  const auto seed = SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = object;
    changed[random() % object.size()] = "0129-.eE\"{}[]:,\\x/\x01\xff"[random() % 20];
    auto decoded = DecodeMetricReport(WithCheck(changed));
    if (decoded.ok()) {
      EXPECT_THAT(DecodeMetricReport(EncodeMetricReport(*decoded)), IsOk()) << changed;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(decoded.status()) || absl::IsUnimplemented(decoded.status())) << changed;
    }
  }
}

TEST(ReportNames, AreMadeFromNumbersAndDigests) {
  const AttemptId attempt{{0xab}};
  EXPECT_THAT(MetricFileName("validation"), MatchesRegex("metrics-[0-9a-f]{32}.json"));
  EXPECT_NE(MetricFileName("validation"), MetricFileName("Validation"));
  EXPECT_TRUE(IsMetricFileName(MetricFileName("../../etc/passwd")));
  EXPECT_THAT(InboxFileName(7, attempt, "validation"), MatchesRegex("0000000007-ab0{30}-[0-9a-f]{32}.json"));
  const auto name = ParseInboxFileName(InboxFileName(7, attempt, "validation"));
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->folder.step, 7);
  EXPECT_EQ(name->folder.attempt, attempt);
  EXPECT_EQ(name->metric_file, MetricFileName("validation"));
}

TEST(ReportNames, TakesNoOthers) {
  const std::string good = InboxFileName(7, AttemptId{{0xab}}, "validation");
  const std::vector<std::string> others = {"",
                                           "-",
                                           good + ".tmp",
                                           "x" + good,
                                           good.substr(1),
                                           good.substr(0, good.size() - 5),
                                           "0" + good,
                                           "../" + good,
                                           "0000000007-validation.json",
                                           ".json",
                                           "metrics-.json"};
  for (const std::string& name : others) {
    EXPECT_FALSE(ParseInboxFileName(name).has_value()) << name;
    EXPECT_FALSE(IsMetricFileName(name)) << name;
  }
  EXPECT_FALSE(IsMetricFileName("metrics-0123.json"));
  EXPECT_FALSE(IsMetricFileName("metrics-json"));
}

TEST(ApplyEvaluation, MergesMetricsUnderTheEvaluatorsName) {
  StepInfo info{.metrics = {{"loss", 3}, {"b/loss", 4}}};
  ApplyEvaluation(info, {.evaluator = "b", .metrics = {{"loss", 1}, {"accuracy", 2}}});
  ApplyEvaluation(info, {.evaluator = "a", .metrics = {{"loss", 5}}});
  EXPECT_EQ(info.metrics, (Metrics{{"loss", 3}, {"b/loss", 1}, {"b/accuracy", 2}, {"a/loss", 5}}));
  ASSERT_EQ(info.evaluations.size(), 2u);
  EXPECT_EQ(info.evaluations[0].evaluator, "a");
  EXPECT_EQ(info.evaluations[1].evaluator, "b");
}

TEST(ApplyEvaluation, TakesThePlaceOfWhatTheEvaluatorSaidBefore) {
  StepInfo info{.metrics = {{"loss", 3}}};
  ApplyEvaluation(info, {.evaluator = "a", .metrics = {{"loss", 1}, {"accuracy", 2}}});
  const Evaluation later{.evaluator = "a", .metrics = {{"loss", kNan}}};
  EXPECT_FALSE(HasEvaluation(info, later));
  ApplyEvaluation(info, later);
  EXPECT_TRUE(HasEvaluation(info, later));
  ASSERT_EQ(info.evaluations.size(), 1u);
  EXPECT_EQ(info.metrics.size(), 2u);
  EXPECT_TRUE(std::isnan(info.metrics.at("a/loss")));
  ApplyEvaluation(info, {.evaluator = "a"});
  EXPECT_EQ(info.metrics, (Metrics{{"loss", 3}}));
}

TEST(ApplyEvaluation, LeavesWhatWasFoundWhereALaterRowFoundNothing) {
  using Outcome = Evaluation::Outcome;
  StepInfo info;
  ApplyEvaluation(info, {.evaluator = "a", .outcome = Outcome::kSkipped, .reason = "lagging"});
  const Evaluation failed{.evaluator = "a", .outcome = Outcome::kFailed, .reason = "no memory"};
  EXPECT_FALSE(IsOutranked(info, failed));
  ApplyEvaluation(info, failed);
  EXPECT_EQ(info.evaluations[0].reason, "no memory");
  ApplyEvaluation(info, {.evaluator = "a", .metrics = {{"loss", 1}}});
  for (const Outcome outcome : {Outcome::kSkipped, Outcome::kFailed}) {
    const Evaluation nothing{.evaluator = "a", .outcome = outcome, .reason = "later"};
    EXPECT_TRUE(IsOutranked(info, nothing));
    EXPECT_TRUE(HasEvaluation(info, nothing)) << "it would change nothing";
    ApplyEvaluation(info, nothing);
    EXPECT_FALSE(IsOutranked(info, {.evaluator = "b", .outcome = outcome}));
  }
  ASSERT_EQ(info.evaluations.size(), 1u);
  EXPECT_EQ(info.evaluations[0].outcome, Outcome::kDone);
  EXPECT_EQ(info.metrics, (Metrics{{"a/loss", 1}}));
  ApplyEvaluation(info, {.evaluator = "a", .outcome = Outcome::kFailed, .unhealthy = "3 NaN"});
  EXPECT_EQ(info.unhealthy(), "a: 3 NaN") << "a verdict is not lost to what was found before";
  ApplyEvaluation(info, failed);
  ApplyEvaluation(info, {.evaluator = "a", .outcome = Outcome::kSkipped});
  EXPECT_EQ(info.unhealthy(), "a: 3 NaN") << "nor to another failure";
  ApplyEvaluation(info, {.evaluator = "a"});
  EXPECT_EQ(info.unhealthy(), "") << "who was asked again has found otherwise";
}

TEST(ApplyEvaluation, LeavesAFailureWhereTheEvaluatorIsNotAskedLater) {
  StepInfo info;
  ApplyEvaluation(info, {.evaluator = "a", .outcome = Evaluation::Outcome::kFailed, .reason = "no memory"});
  ApplyEvaluation(info, {.evaluator = "a", .outcome = Evaluation::Outcome::kSkipped, .reason = "lagging"});
  EXPECT_EQ(info.evaluations[0].reason, "no memory");
}

TEST(HasEvaluation, KnowsWhatTwoWorkersFoundAlike) {
  StepInfo info;
  Evaluation row{.evaluator = "a", .worker = "one", .metrics = {{"loss", 1}}, .took = absl::Seconds(2)};
  ApplyEvaluation(info, row);
  row.worker = "two";
  row.reported = absl::FromUnixSeconds(1'700'000'000);
  row.took = absl::Seconds(3);
  EXPECT_TRUE(HasEvaluation(info, row));
  row.metrics["loss"] = 2;
  EXPECT_FALSE(HasEvaluation(info, row));
  row = {.evaluator = "b", .outcome = Evaluation::Outcome::kFailed, .reason = "no memory"};
  ApplyEvaluation(info, row);
  EXPECT_TRUE(HasEvaluation(info, row));
  row.reported = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_FALSE(HasEvaluation(info, row)) << "that it has failed once more is news";
}

}  // namespace
}  // namespace tidemark::storage
