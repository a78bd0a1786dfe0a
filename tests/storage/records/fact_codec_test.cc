// EncodeFact and DecodeFact.

#include <bit>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/bytes/ids.h"
#include "storage/records/fact.h"
#include "storage/records/metric_report.h"
#include "storage/records/phases_record.h"
#include "tests/non_finite.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/records/fact_testing.h"
#include "tests/storage/records/step_record_json.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::_;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kSeed = 20261128;
constexpr size_t kKinds = std::variant_size_v<Fact>;

// As what the JSON records hold, which says that both forms have the same fields and the same precision.
std::string Shown(const Fact& fact) {
  return std::visit(
      []<typename T>(const T& one) -> std::string {
        if constexpr (std::is_same_v<T, StepFact>) {
          return EncodeStepRecord(one.record);
        } else if constexpr (std::is_same_v<T, StateFact>) {
          return fmt::format("{} {} {} {}", one.step, one.attempt, StepStateName(one.state), one.reason);
        } else if constexpr (std::is_same_v<T, EvaluationFact>) {
          StepRecord record;
          record.info.evaluations = {one.evaluation};
          return fmt::format("{} {} {}", one.step, one.attempt, EncodeStepRecord(record));
        } else if constexpr (std::is_same_v<T, PinFact>) {
          return fmt::format("{} {} {} {} {}", one.step, one.attempt, one.pinned, one.note, fmt::join(one.tags, ","));
        } else if constexpr (std::is_same_v<T, KeptFact>) {
          return fmt::format("{} {} {}", one.step, one.attempt, one.reason);
        } else if constexpr (std::is_same_v<T, PhasesFact>) {
          return fmt::format("{} {}", one.record.step, EncodePhasesRecord(one.record));
        } else if constexpr (std::is_same_v<T, BestModesFact>) {
          return EncodeBestModes(one.modes);
        } else if constexpr (std::is_same_v<T, DeletionRequestFact>) {
          return fmt::format("{} {} {} {} {} {}", one.id, one.step, one.attempt, one.reason, one.asker,
                             absl::ToUnixNanos(one.asked));
        } else if constexpr (std::is_same_v<T, StoreFact>) {
          return ToHex(one.store.bytes);
        } else {
          return fmt::format("{} {}", one.id, one.refused);
        }
      },
      fact);
}

void ExpectSurvives(const Fact& fact) {
  const std::string bytes = Bytes(fact);
  const auto decoded = DecodeFact(bytes);
  ASSERT_THAT(decoded, IsOk());
  ASSERT_EQ(decoded->index(), fact.index());
  EXPECT_EQ(Shown(*decoded), Shown(fact));
  EXPECT_EQ(Bytes(*decoded), bytes);
}

TEST(FactCodec, KeepsEveryFieldOfEveryKind) {
  for (const Fact& fact : FactsOfEachKind()) {
    SCOPED_TRACE(fact.index());
    ExpectSurvives(fact);
  }
}

TEST(FactCodec, WritesAFactAsTheseBytes) {
  const Fact unsaved = StateFact{.step = 258, .state = StepState::kUnsaved, .reason = "no"};
  EXPECT_EQ(Bytes(unsaved), std::string("\2\1"
                                        "\2\1\0\0\0\0\0\0"
                                        "\6"
                                        "\0"
                                        "\2\0\0\0no",
                                        18));
  const Fact kept = KeptFact{.step = 1, .attempt = std::string(30, '0') + "ff", .reason = ""};
  EXPECT_EQ(Bytes(kept), "\5\1\1" + std::string(22, '\0') + "\xff" + std::string(4, '\0'));
}

// FullStep, with the list of its shards.
std::string FullStepOfVersion1() {
  constexpr size_t kReferencesBytes = sizeof(uint32_t) + 32, kDigestBytes = 16;
  std::string bytes = Bytes(FactsOfEachKind().front());
  bytes[1] = 1;
  ByteWriter shards;
  shards.Put<uint32_t>(2);
  for (const uint8_t rank : {0, 1}) {
    shards.Put<uint32_t>(rank);
    shards.Put<uint64_t>(rank == 0 ? 50 : 40);
    shards.PutBytes16({static_cast<uint8_t>(rank + 1)});
  }
  return bytes.replace(bytes.size() - kReferencesBytes - kDigestBytes, kDigestBytes, shards.view());
}

// What is in journals stays readable: a form that changes needs a new version, and the old one its reader.
TEST(FactCodec, HasTheFormsOfItsVersion) {
  std::vector<std::string> digests;
  for (const Fact& fact : FactsOfEachKind())
    digests.push_back(ToHex(DigestOf(AsBytes(Bytes(fact))).bytes).substr(0, 8));
  EXPECT_THAT(digests, ElementsAre("271f3f3e", "8ddc41f8", "7ea79f73", "a5232e5a", "128fdd07", "5d5926b2", "5110d2ad",
                                   "2eff9e42", "231bfab8", "193dbd3e"));
  // As version 1 of a step fact was, when this was its digest.
  EXPECT_EQ(ToHex(DigestOf(AsBytes(FullStepOfVersion1())).bytes).substr(0, 8), "a5fec028");
  const auto decoded = DecodeFact(FullStepOfVersion1());
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(Bytes(*decoded), Bytes(FactsOfEachKind().front()));
  for (uint8_t number = 1; number <= 6; ++number) {
    const StepState states[] = {StepState::kCommitted, StepState::kDamaged, StepState::kLost,
                                StepState::kFailed,    StepState::kDeleted, StepState::kUnsaved};
    EXPECT_EQ(Bytes(StateFact{.attempt = TestAttemptName(1), .state = states[number - 1]})[10], number);
  }
}

TEST(FactCodec, KeepsDrawnFacts) {
  FactDrawer drawer(kSeed);
  for (int i = 0; i < 200; ++i) {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      SCOPED_TRACE(fmt::format("kind {}, draw {} of seed {}", kind, i, kSeed));
      ExpectSurvives(drawer.DrawOfKind(kind));
    }
  }
}

TEST(FactCodec, KeepsEveryBitOfANumber) {
  StepRecord record = FullStep();
  for (const uint64_t bits :
       std::initializer_list<uint64_t>{0x7ff8'0000'0000'0123, 0xfff8'0000'0000'0000, 0x7ff0'0000'0000'0001,
                                       0x8000'0000'0000'0000, 0x0000'0000'0000'0001}) {
    record.info.metrics["loss"] = std::bit_cast<double>(bits);
    const auto decoded = DecodeFact(Bytes(record));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(std::bit_cast<uint64_t>(std::get<StepFact>(*decoded).record.info.metrics.at("loss")), bits);
  }
}

TEST(FactCodec, CutsTimesOffAsTheRecordsDo) {
  PhasesRecord record{.step = 1, .attempt = TestAttemptName(1)};
  record.phases = {{.begin = absl::Nanoseconds(1'900), .duration = absl::Nanoseconds(1'200), .busy = absl::Hours(1)},
                   {.begin = -absl::Seconds(1), .duration = absl::InfiniteDuration()}};
  StepRecord step = FullStep();
  step.info.created += absl::Nanoseconds(1) / 4;
  step.info.blocked += absl::Nanoseconds(1) / 4;
  for (const Fact& fact : {Fact(PhasesFact{record}), Fact(StepFact{step})}) {
    const auto decoded = DecodeFact(Bytes(fact));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(Shown(*decoded), Shown(fact));
  }
}

TEST(FactCodec, RefusesEveryTruncationAndEveryByteMore) {
  for (const Fact& fact : FactsOfEachKind()) {
    SCOPED_TRACE(fact.index());
    const std::string bytes = Bytes(fact);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THAT(DecodeFact(bytes.substr(0, size)), StatusIs(StatusCode::kDataLoss, HasSubstr("at byte"))) << size;
    }
    EXPECT_THAT(DecodeFact(bytes + '\0'), StatusIs(StatusCode::kDataLoss, HasSubstr("end at byte")));
  }
}

// What is read is a fact that the encoder writes with just these bytes.
void ExpectRefusedOrAFact(std::string_view bytes) {
  const auto decoded = DecodeFact(bytes);
  if (decoded.ok()) {
    EXPECT_EQ(Bytes(*decoded), bytes);
  } else if (!absl::IsUnimplemented(decoded.status())) {
    EXPECT_THAT(decoded, StatusIs(StatusCode::kDataLoss, HasSubstr("fact: ")));
  }
}

TEST(FactCodec, RefusesAnyByteChangedOrReadsAnotherFact) {
  std::vector<Fact> facts = FactsOfEachKind();
  facts.push_back(
      PinFact{.step = 1000, .attempt = TestAttemptName(1)});  // in which no other field contradicts the flag
  for (const Fact& fact : facts) {
    const std::string good = Bytes(fact);
    for (size_t i = 0; i < good.size(); ++i) {
      for (const int flip : {1, 2, 4, 8, 16, 32, 0x40, 0x80, 0xff}) {
        SCOPED_TRACE(fmt::format("kind {}, byte {}, flip {}", fact.index(), i, flip));
        std::string bytes = good;
        bytes[i] = static_cast<char>(bytes[i] ^ flip);
        ExpectRefusedOrAFact(bytes);
      }
    }
  }
}

TEST(FactCodec, DoesNotReadKindsAndVersionsThatItDoesNotKnow) {
  const std::string good = Bytes(FactsOfEachKind()[3]);
  const auto with = [&](size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    return bytes;
  };
  EXPECT_THAT(DecodeFact(with(0, kKinds + 1)),
              StatusIs(StatusCode::kUnimplemented, "fact of kind 11; this library knows the kinds up to 10"));
  EXPECT_THAT(DecodeFact(with(0, '\xff')), StatusIs(StatusCode::kUnimplemented, HasSubstr("fact of kind 255")));
  EXPECT_THAT(DecodeFact(with(1, 2)),
              StatusIs(StatusCode::kUnimplemented, "pin fact has version 2; this library reads up to 1"));
  EXPECT_THAT(DecodeFact(with(0, 0)),
              StatusIs(StatusCode::kDataLoss, "fact: kind at byte 0: expected 1 or more, found 0"));
  EXPECT_THAT(DecodeFact(with(1, 0)),
              StatusIs(StatusCode::kDataLoss, "pin fact: version at byte 1: expected 1 or more, found 0"));
  EXPECT_THAT(DecodeFact(""), StatusIs(StatusCode::kDataLoss, HasSubstr("fact: kind at byte 0: expected 1 bytes")));
}

TEST(FactCodec, ReplacesTextThatIsNotUtf8) {
  const auto read_back = [](const Fact& fact) { return DecodeFact(Bytes(fact)).value(); };
  const std::string bad = "path/\xff";
  const std::string replaced = "path/\xef\xbf\xbd";
  StepRecord record = FullStep();
  record.info.reason = record.info.user_metadata = record.info.pin_note = record.info.kept = bad;
  record.info.metrics = {{bad, 1}, {"path/\xf0\x90\x80\x80", 2}};  // which is behind it only as it is written
  record.info.evaluations[0].worker = bad;
  const StepInfo info = std::get<StepFact>(read_back(StepFact{record})).record.info;
  for (const std::string& text :
       {info.reason, info.user_metadata, info.pin_note, info.kept, info.evaluations[0].worker}) {
    EXPECT_EQ(text, replaced);
  }
  EXPECT_EQ(info.metrics.at(replaced), 1);
  EXPECT_EQ(info.metrics.size(), 2u);
  EXPECT_EQ(Shown(read_back(StepFact{record})), EncodeStepRecord(*DecodeStepRecord(EncodeStepRecord(record))));
  const Fact refusal = AnswerFact{.id = TestAttemptName(1), .refused = bad};
  EXPECT_EQ(std::get<AnswerFact>(read_back(refusal)).refused, replaced);
  const Fact modes = BestModesFact{{{bad, BestMode::kHighest}}};
  EXPECT_EQ(std::get<BestModesFact>(read_back(modes)).modes.at(replaced), BestMode::kHighest);
}

// A fact of the kind, with something that is wrong.
template <typename T>
Fact With(const std::function<void(T&)>& change) {
  for (const Fact& fact : FactsOfEachKind()) {
    if (!std::holds_alternative<T>(fact)) continue;
    T changed = std::get<T>(fact);
    change(changed);
    return changed;
  }
  return {};
}

TEST(FactCodec, DoesNotWriteWhatNoReaderTakes) {
  struct Case {
    Fact fact;
    std::string why;
  };
  const auto step = [](const std::function<void(StepRecord&)>& change) {
    return With<StepFact>([&](StepFact& fact) { change(fact.record); });
  };
  const auto evaluation = [](const std::function<void(Evaluation&)>& change) {
    return With<EvaluationFact>([&](EvaluationFact& fact) { change(fact.evaluation); });
  };
  const auto phases = [](const std::function<void(PhasesRecord&)>& change) {
    return With<PhasesFact>([&](PhasesFact& fact) { change(fact.record); });
  };
  const std::vector<Case> cases = {
      {step([](StepRecord& r) { r.info.step = -1; }),
       "step fact was not written, because it could not be read back: "
       "step fact: step at byte 2: expected 0 or more, found -1"},
      {step([](StepRecord& r) { r.info.state = static_cast<StepState>(6); }), "state at byte 10: expected 1 to 6"},
      {step([](StepRecord& r) { r.info.attempt = "x"; }),
       "step fact was not written: attempt 'x' is not 32 hexadecimal digits"},
      {step([](StepRecord& r) { r.info.attempt.clear(); }), "expected one, since the step is committed, found none"},
      {step([](StepRecord& r) {
         r.info.tags = {"b", "a"};
       }),
       "tags are not in ascending order"},
      {step([](StepRecord& r) { r.info.tags = {"a b"}; }), "tag 'a b' has a character other than"},
      {step([](StepRecord& r) { r.info.tags.assign(65, "a"); }), "expected 0 to 64, found 65"},
      {step([](StepRecord& r) { r.info.pinned = false; }), "expected none, since the step is not pinned"},
      {step([](StepRecord& r) { r.info.evaluations[1].evaluator = "e"; }),
       "expected evaluators in ascending order, each once, found 'e'"},
      {step([](StepRecord& r) { r.info.evaluations[1].evaluator = "d"; }), "ascending order, each once, found 'd'"},
      {step([](StepRecord& r) { r.info.evaluations[1].evaluator = "f/"; }), "evaluator's name 'f/' has a '/'"},
      {step([](StepRecord& r) { r.info.evaluations[1].took = -absl::Seconds(1); }), "expected 0 or more, found -1s"},
      {step([](StepRecord& r) {
         r.info.metrics = {{"\xfe", 1}, {"\xff", 1}};
       }),
       "'\\xff' is not UTF-8, and another one would be the same"},
      {step([](StepRecord& r) { r.references[0].step = -1; }), "step of a reference at byte"},
      {With<StateFact>([](StateFact& f) { f.step = -1; }), "state fact: step at byte 2"},
      {With<StateFact>([](StateFact& f) { f.attempt.clear(); }), "since the step is damaged, found none"},
      {With<StateFact>([](StateFact& f) { f.attempt[0] = 'A'; }), "is not 32 hexadecimal digits"},
      {evaluation([](Evaluation& e) { e.evaluator.clear(); }), "has 0 bytes; it must have 1 to 256"},
      {evaluation([](Evaluation& e) { e.evaluator = "\xff"; }), "evaluator at byte 27: expected UTF-8"},
      {evaluation([](Evaluation& e) { e.evaluator = "\n"; }), "has a control character"},
      {evaluation([](Evaluation& e) { e.metrics[""] = 1; }), "the metric's name '' has 0 bytes"},
      {evaluation([](Evaluation& e) { e.metrics["\xff"] = 1; }), "expected UTF-8"},
      {evaluation([](Evaluation& e) { e.outcome = static_cast<Evaluation::Outcome>(3); }), "outcome at byte"},
      {evaluation([](Evaluation& e) { e.took = -absl::Nanoseconds(1); }), "took at byte"},
      {evaluation([](Evaluation& e) { e.reason.assign(kMetricReportBytesMax, 'x'); }),
       "size at byte 0: expected at most 1048576 bytes"},
      {With<PinFact>([](PinFact& f) { f.pinned = false; }), "note and tags at byte"},
      {With<PinFact>([](PinFact& f) { f.attempt.clear(); }), "attempt '' is not 32 hexadecimal digits"},
      {With<PinFact>([](PinFact& f) { f.note.assign(kFactNoteBytesMax + 1, 'x'); }), "expected at most 65536 bytes"},
      {With<PinFact>([](PinFact& f) {
         f.tags = {"a", "a"};
       }),
       "tags are not in ascending order"},
      {With<KeptFact>([](KeptFact& f) { f.attempt = std::string(31, '0'); }), "is not 32 hexadecimal digits"},
      {phases([](PhasesRecord& r) { r.attempt.clear(); }), "attempt '' is not 32 hexadecimal digits"},
      {phases([](PhasesRecord& r) { r.step = -1; }), "phases fact: step at byte 2"},
      {With<BestModesFact>([](BestModesFact& f) { f.modes["x"] = static_cast<BestMode>(2); }), "mode at byte"},
      {With<DeletionRequestFact>([](DeletionRequestFact& f) { f.id = "x"; }), "id 'x' is not 32 hexadecimal digits"},
      {With<DeletionRequestFact>([](DeletionRequestFact& f) { f.attempt.clear(); }), "is not 32 hexadecimal digits"},
      {With<DeletionRequestFact>([](DeletionRequestFact& f) { f.reason.assign(kFactNoteBytesMax + 1, 'x'); }),
       "reason at byte 42: expected at most 65536 bytes, found 65537"},
      {With<DeletionRequestFact>([](DeletionRequestFact& f) { f.asker.assign(kFactAskerBytesMax + 1, 'x'); }),
       "asker at byte"},
      {With<AnswerFact>([](AnswerFact& f) { f.id.clear(); }), "id '' is not 32 hexadecimal digits"},
  };
  for (const auto& [fact, why] : cases) {
    EXPECT_THAT(EncodeFact(fact), StatusIs(StatusCode::kInvalidArgument, HasSubstr(why)));
  }
}

// Changes that no writer makes.
TEST(FactCodec, RefusesTimesOfPhasesOutOfTheirRange) {
  const std::string good = Bytes(FactsOfEachKind()[5]);
  const size_t begin_at = good.find("persister") + std::string_view("persister").size();
  const auto with = [&](size_t at, int64_t value) {
    std::string bytes = good;
    bytes.replace(at, sizeof(value), reinterpret_cast<const char*>(&value), sizeof(value));
    return DecodeFact(bytes);
  };
  const auto refused = [](std::string_view why) {
    return StatusIs(StatusCode::kDataLoss, HasSubstr(std::string(why)));
  };
  EXPECT_THAT(with(begin_at, 11), IsOk());
  EXPECT_THAT(with(begin_at, -1), refused("begin of a phase at byte"));
  EXPECT_THAT(with(begin_at, kPhaseMicrosecondsMax + 1), refused("begin of a phase at byte"));
  EXPECT_THAT(with(begin_at, kPhaseMicrosecondsMax), refused("expected an end within its range"));
  EXPECT_THAT(with(begin_at + 8, 14), refused("expected at most its duration, found 15us"));
}

TEST(FactCodec, TakesNoMemoryForCountsThatCannotBe) {
  const std::vector<std::pair<Fact, std::string>> empty = {
      {StepFact{{.info = {.attempt = TestAttemptName(1)}}}, "references"},
      {BestModesFact{}, "modes"},
      {PhasesFact{{.attempt = TestAttemptName(1)}}, "phases"},
      {PinFact{.attempt = TestAttemptName(1), .pinned = true}, "tags"},
      {EvaluationFact{.attempt = TestAttemptName(1), .evaluation = {.evaluator = "e"}}, "metrics of the evaluation"},
  };
  for (const auto& [fact, what] : empty) {
    std::string bytes = Bytes(fact);
    bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff");
    EXPECT_THAT(DecodeFact(bytes), StatusIs(StatusCode::kDataLoss, HasSubstr(what + " at byte")));
  }
}

}  // namespace
}  // namespace tidemark::storage
