#include "tests/storage/records/fact_testing.h"

#include <bit>
#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "storage/records/record_bytes.h"
#include "storage/records/tag.h"
#include "tests/non_finite.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {

StepRecord FullStep(int64_t step, uint8_t attempt) {
  StepRecord record;
  StepInfo& info = record.info;
  info.step = step;
  info.attempt = TestAttemptName(attempt);
  info.sequence = 7;
  info.created = absl::FromUnixNanos(1'700'000'000'123'456'789);
  info.world_size = 2;
  info.metrics = {{"e/loss", 0.5}, {"loss", 0.1}, {"nan", kNan}};
  info.evaluations = {{.evaluator = "e", .worker = "trainer", .metrics = {{"loss", 0.5}}},
                      {.evaluator = "f", .outcome = Evaluation::Outcome::kFailed, .reason = "no data"}};
  info.user_metadata = R"({"epoch":3})";
  info.entry_count = 3;
  info.logical_bytes = 100;
  info.stored_bytes = 90;
  info.reused_bytes = 40;
  info.blocked = absl::Nanoseconds(1'234'567);
  info.pinned = true;
  info.pin_note = "größe";
  info.tags = {"best", "v1"};
  info.kept = "latest";
  record.shards.Add(0, 50, Digest128{{1}});
  record.shards.Add(1, 40, Digest128{{2}});
  record.references = {{.step = 10, .attempt = TestAttempt(9), .rank = 1, .world_size = 2}};
  return record;
}

std::vector<Fact> FactsOfEachKind() {
  const std::string attempt = TestAttemptName(1);
  Evaluation evaluation{.evaluator = "validation",
                        .worker = "pid 7 on node-3",
                        .outcome = Evaluation::Outcome::kFailed,
                        .reason = "no data",
                        .metrics = {{"down", -kInfinity}, {"loss", 0.1}, {"nan", kNan}},
                        .unhealthy = "NaN in größe",
                        .reported = absl::FromUnixNanos(1'700'000'000'123'456'789),
                        .took = absl::Nanoseconds(987'654'321)};
  PhasesRecord phases{.step = 1000, .attempt = attempt};
  phases.phases = {{.name = "write",
                    .lane = "persister",
                    .begin = absl::Microseconds(10),
                    .duration = absl::Microseconds(20),
                    .busy = absl::Microseconds(15),
                    .bytes = 1 << 20},
                   {.name = "sync", .lane = "persister", .begin = absl::Microseconds(30)}};
  return {StepFact{FullStep()},
          StateFact{.step = 1000, .attempt = attempt, .state = StepState::kDamaged, .reason = "chunk 3"},
          EvaluationFact{.step = 1000, .attempt = attempt, .evaluation = std::move(evaluation)},
          PinFact{.step = 1000, .attempt = attempt, .pinned = true, .note = "paper", .tags = {"a", "b/c"}},
          KeptFact{.step = 1000, .attempt = attempt, .reason = "one of the last 3"},
          PhasesFact{std::move(phases)},
          BestModesFact{{{"accuracy", BestMode::kHighest}, {"loss", BestMode::kLowest}}},
          DeletionRequestFact{.id = TestAttemptName(77),
                              .step = 1000,
                              .attempt = attempt,
                              .reason = "bad data",
                              .asker = "pid 8 on node-3",
                              .asked = absl::FromUnixNanos(1'700'000'000'000'000'001)},
          AnswerFact{.id = TestAttemptName(77), .refused = "it is pinned"},
          StoreFact{.store = StoreId{{9, 8, 7}}}};
}

std::string FactDrawer::Text() {
  static constexpr std::string_view kTexts[] = {
      "", "a", "größe", "two\nlines", "{\"epoch\":3}", std::string_view("\0", 1)};
  return std::string(kTexts[Below(std::size(kTexts))]);
}

double FactDrawer::Number() {
  const double numbers[] = {
      0.0,   -0.0, 0.25,      1,          -3,
      1e300, kNan, kInfinity, -kInfinity, std::bit_cast<double>(uint64_t{0x7ff8'0000'0000'0001} + Below(1000))};
  return numbers[Below(std::size(numbers))];
}

std::string FactDrawer::Attempt(StepState state) {
  if (MayLackAttempt(state) && Below(2) == 0) return "";
  return TestAttemptName(static_cast<uint8_t>(Below(4)));
}

Metrics FactDrawer::DrawMetrics() {
  Metrics metrics;
  for (uint64_t n = Below(4); n > 0; --n) metrics[fmt::format("m{}", Below(3))] = Number();
  return metrics;
}

Evaluation FactDrawer::DrawEvaluation(uint64_t evaluator) {
  return {.evaluator = fmt::format("e{}", evaluator),
          .worker = Text(),
          .outcome = kOutcomeNumbers[Below(std::size(kOutcomeNumbers))],
          .reason = Text(),
          .metrics = DrawMetrics(),
          .unhealthy = Below(4) == 0 ? Text() : "",
          .reported = absl::FromUnixNanos(static_cast<int64_t>(random_())),
          .took = absl::Nanoseconds(static_cast<int64_t>(random_() >> 1))};
}

std::vector<std::string> FactDrawer::Tags() {
  std::vector<std::string> tags;
  for (uint64_t n = Below(3); n > 0; --n) AddTag(tags, fmt::format("t{}", Below(5)));
  return tags;
}

StepRecord FactDrawer::Record() {
  StepRecord record;
  StepInfo& info = record.info;
  info.step = Step();
  info.state = Below(2) == 0 ? StepState::kCommitted : kStateNumbers[Below(std::size(kStateNumbers))];
  info.attempt = Attempt(info.state);
  info.sequence = Below(100);
  info.created = absl::FromUnixNanos(static_cast<int64_t>(random_()));
  info.blocked = absl::Nanoseconds(static_cast<int64_t>(random_()));
  info.world_size = static_cast<uint32_t>(random_());
  info.entry_count = random_();
  info.logical_bytes = random_();
  info.stored_bytes = random_();
  info.reused_bytes = random_();
  info.metrics = DrawMetrics();
  info.reason = Text();
  info.user_metadata = Text();
  info.kept = Text();
  info.pinned = Below(2) == 0;
  if (info.pinned) info.tags = Tags();
  info.pin_note = Text();
  for (uint64_t i = 0; i < 3; ++i) {
    if (Below(4) == 0) info.evaluations.push_back(DrawEvaluation(i));
  }
  if (info.state == StepState::kDeleted) return record;
  for (uint64_t n = Below(3); n > 0; --n) {
    record.shards.Add(static_cast<uint32_t>(random_()), random_(), {});
    record.references.push_back(
        {.step = Step(), .attempt = TestAttempt(static_cast<uint8_t>(Below(4))), .world_size = 3});
  }
  return record;
}

PhasesRecord FactDrawer::Phases() {
  PhasesRecord record{.step = Step(), .attempt = TestAttemptName(static_cast<uint8_t>(Below(4)))};
  for (uint64_t n = Below(4); n > 0; --n) {
    const uint64_t duration = Below(1000);
    record.phases.push_back({.name = Text(),
                             .lane = Text(),
                             .begin = absl::Microseconds(Below(uint64_t{1} << 40)),
                             .duration = absl::Microseconds(duration),
                             .busy = absl::Microseconds(Below(duration + 1)),
                             .bytes = random_()});
  }
  return record;
}

Fact FactDrawer::Draw() { return DrawOfKind(Below(std::variant_size_v<Fact>)); }

Fact FactDrawer::DrawOfKind(size_t kind) {
  const std::string attempt = TestAttemptName(static_cast<uint8_t>(Below(4)));
  const StepState state = kStateNumbers[Below(std::size(kStateNumbers))];
  const bool pinned = Below(2) == 0;
  BestModes modes;
  for (uint64_t n = Below(3); n > 0; --n) modes[Text()] = kModeNumbers[Below(2)];
  const std::string id = ToHex(AttemptId{{static_cast<uint8_t>(Below(5)), 0xcd}}.bytes);
  switch (kind) {
    case 0:
      return StepFact{Record()};
    case 1:
      return StateFact{.step = Step(), .attempt = Attempt(state), .state = state, .reason = Text()};
    case 2:
      return EvaluationFact{
          .step = Step(), .attempt = Attempt(StepState::kUnsaved), .evaluation = DrawEvaluation(Below(3))};
    case 3:
      return PinFact{.step = Step(),
                     .attempt = attempt,
                     .pinned = pinned,
                     .note = pinned ? Text() : "",
                     .tags = pinned ? Tags() : std::vector<std::string>()};
    case 4:
      return KeptFact{.step = Step(), .attempt = attempt, .reason = Text()};
    case 5:
      return PhasesFact{Phases()};
    case 6:
      return BestModesFact{std::move(modes)};
    case 7:
      return DeletionRequestFact{.id = id,
                                 .step = Step(),
                                 .attempt = attempt,
                                 .reason = Text(),
                                 .asker = Text(),
                                 .asked = absl::FromUnixNanos(static_cast<int64_t>(random_()))};
    case 8:
      return AnswerFact{.id = id, .refused = Text()};
    default:
      return StoreFact{.store = StoreId{{static_cast<uint8_t>(Below(5))}}};
  }
}

std::string Bytes(const Fact& fact) {
  auto bytes = EncodeFact(fact);
  EXPECT_THAT(bytes, IsOk());
  return bytes.value_or("");
}

std::string Bytes(const StepRecord& record) { return Bytes(Fact(StepFact{record})); }

}  // namespace tidemark::storage
