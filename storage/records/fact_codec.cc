// The bytes of facts: the number of the kind, the version of its form, and its fields in the order of the functions
// below.

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/checked_encoding.h"
#include "storage/bytes/utf8.h"
#include "storage/records/fact.h"
#include "storage/records/metric_report.h"
#include "storage/records/record_bytes.h"

namespace tidemark::storage {
namespace {

struct Kind {
  std::string_view what;
  uint8_t version = 1;  // the newest one
};

// A kind's number on disk is its place in Fact, from 1; new kinds go to the end of both.
constexpr std::array<Kind, std::variant_size_v<Fact>> kKinds = {{{"step fact", kStepBytesVersion},
                                                                 {"state fact"},
                                                                 {"evaluation fact"},
                                                                 {"pin fact"},
                                                                 {"kept fact"},
                                                                 {"phases fact"},
                                                                 {"best modes fact"},
                                                                 {"deletion request fact"},
                                                                 {"answer fact"},
                                                                 {"store fact"}}};

void Put(RecordWriter& writer, const StepFact& fact) { writer.PutStep(fact.record); }
void Get(RecordReader& reader, uint8_t version, StepFact& fact) { fact.record = reader.GetStep(version); }

void Put(RecordWriter& writer, const StateFact& fact) {
  writer.Put<int64_t>(fact.step);
  writer.PutNumber(kStateNumbers, fact.state);
  writer.PutAttempt("attempt", fact.attempt);
  writer.PutText(fact.reason);
}
void Get(RecordReader& reader, StateFact& fact) {
  fact.step = reader.GetStep("step");
  fact.state = reader.GetNumber(kStateNumbers, "state");
  fact.attempt = reader.GetAttempt("attempt", fact.state);
  fact.reason = reader.GetText("reason");
}

void Put(RecordWriter& writer, const EvaluationFact& fact) {
  writer.Put<int64_t>(fact.step);
  writer.PutAttempt("attempt", fact.attempt);
  writer.PutEvaluation(fact.evaluation);
}
void Get(RecordReader& reader, EvaluationFact& fact) {
  if (reader.in().remaining() > kMetricReportBytesMax) {
    reader.in().FailAt(0, "size", fmt::format("at most {} bytes", kMetricReportBytesMax),
                       fmt::format("{}", reader.in().remaining()));
  }
  fact.step = reader.GetStep("step");
  fact.attempt = reader.GetAttempt("attempt");
  fact.evaluation = reader.GetEvaluation();
}

void Put(RecordWriter& writer, const PinFact& fact) {
  writer.Put<int64_t>(fact.step);
  writer.PutId("attempt", fact.attempt);
  writer.PutBool(fact.pinned);
  writer.PutText(fact.note);
  writer.PutTexts(fact.tags);
}
void Get(RecordReader& reader, PinFact& fact) {
  fact.step = reader.GetStep("step");
  fact.attempt = reader.GetId("attempt");
  fact.pinned = reader.GetBool("pinned");
  const size_t begin = reader.in().offset();
  fact.note = reader.GetText("note", kFactNoteBytesMax);
  fact.tags = reader.GetTags("tags");
  if (!fact.pinned && !(fact.note.empty() && fact.tags.empty())) {
    reader.in().FailAt(begin, "note and tags", "none, since the step is not pinned", "some");
  }
}

void Put(RecordWriter& writer, const KeptFact& fact) {
  writer.Put<int64_t>(fact.step);
  writer.PutId("attempt", fact.attempt);
  writer.PutText(fact.reason);
}
void Get(RecordReader& reader, KeptFact& fact) {
  fact.step = reader.GetStep("step");
  fact.attempt = reader.GetId("attempt");
  fact.reason = reader.GetText("reason");
}

void Put(RecordWriter& writer, const PhasesFact& fact) { writer.PutPhases(fact.record); }
void Get(RecordReader& reader, PhasesFact& fact) { fact.record = reader.GetPhases(); }

void Put(RecordWriter& writer, const BestModesFact& fact) { writer.PutModes(fact.modes); }
void Get(RecordReader& reader, BestModesFact& fact) { fact.modes = reader.GetModes(); }

void Put(RecordWriter& writer, const DeletionRequestFact& fact) {
  writer.PutId("id", fact.id);
  writer.Put<int64_t>(fact.step);
  writer.PutId("attempt", fact.attempt);
  writer.PutText(fact.reason);
  writer.PutText(fact.asker);
  writer.PutTime(fact.asked);
}
void Get(RecordReader& reader, DeletionRequestFact& fact) {
  fact.id = reader.GetId("id");
  fact.step = reader.GetStep("step");
  fact.attempt = reader.GetId("attempt");
  fact.reason = reader.GetText("reason", kFactNoteBytesMax);
  fact.asker = reader.GetText("asker", kFactAskerBytesMax);
  fact.asked = reader.GetTime("asked");
}

void Put(RecordWriter& writer, const AnswerFact& fact) {
  writer.PutId("id", fact.id);
  writer.PutText(fact.refused);
}
void Get(RecordReader& reader, AnswerFact& fact) {
  fact.id = reader.GetId("id");
  fact.refused = reader.GetText("refusal");
}

void Put(RecordWriter& writer, const StoreFact& fact) { writer.PutId("store", ToHex(fact.store.bytes)); }
void Get(RecordReader& reader, StoreFact& fact) { fact.store = StoreId{reader.in().GetBytes16("store")}; }

// Makes `fact` the kind of that index.
template <size_t kIndex = 0>
void Read(RecordReader& reader, size_t index, uint8_t version, Fact& fact) {
  if constexpr (kIndex < std::variant_size_v<Fact>) {
    if (index != kIndex) return Read<kIndex + 1>(reader, index, version, fact);
    auto& read = fact.emplace<kIndex>();
    if constexpr (kKinds[kIndex].version > 1) {
      Get(reader, version, read);
    } else {
      Get(reader, read);
    }
  }
}

}  // namespace

absl::StatusOr<std::string> EncodeFact(const Fact& fact) {
  const std::string_view what = kKinds[fact.index()].what;
  absl::Status formless;
  const auto encode = [&](const Fact& to_write) {
    RecordWriter writer;
    writer.Put<uint8_t>(static_cast<uint8_t>(to_write.index() + 1));
    writer.Put<uint8_t>(kKinds[to_write.index()].version);
    std::visit([&](const auto& one) { Put(writer, one); }, to_write);
    formless.Update(writer.status());
    return std::move(writer).Take();
  };
  auto encoded = EncodeAndCheck(what, fact, encode, DecodeFact);
  if (!formless.ok()) {
    return absl::Status(formless.code(), fmt::format("{} was not written: {}", what, std::string(formless.message())));
  }
  if (!encoded.ok()) return encoded.status();
  return std::move(encoded->bytes);
}

absl::StatusOr<Fact> DecodeFact(std::string_view bytes) {
  const size_t kind = bytes.empty() ? 0 : static_cast<unsigned char>(bytes.front());
  if (kind > kKinds.size()) {
    return absl::UnimplementedError(
        fmt::format("fact of kind {}; this library knows the kinds up to {}", kind, kKinds.size()));
  }
  const Kind known = kind == 0 ? Kind{"fact"} : kKinds[kind - 1];
  const std::string_view what = known.what;
  RecordReader reader(bytes, what);
  if (reader.in().Get<uint8_t>("kind") == 0) reader.in().Fail("kind", 1, "1 or more", "0");
  const auto version = reader.in().Get<uint8_t>("version");
  if (version > known.version) {
    return absl::UnimplementedError(
        fmt::format("{} has version {}; this library reads up to {}", what, version, known.version));
  }
  if (version == 0) reader.in().Fail("version", 1, "1 or more", "0");
  if (!reader.ok()) return reader.status();
  Fact fact;
  Read(reader, kind - 1, version, fact);
  reader.in().ExpectEnd();
  if (!reader.ok()) return reader.status();
  return fact;
}

}  // namespace tidemark::storage
