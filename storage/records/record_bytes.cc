#include "storage/records/record_bytes.h"

#include <limits>

#include "fmt/format.h"
#include "storage/bytes/utf8.h"
#include "storage/io/quoted_name.h"
#include "storage/records/json_fields.h"
#include "storage/records/metric_report.h"
#include "storage/records/tag.h"

namespace tidemark::storage {
namespace {

constexpr size_t kTextBytesMin = sizeof(uint32_t);
constexpr size_t kMetricBytesMin = kTextBytesMin + sizeof(double);
constexpr size_t kModeBytesMin = kTextBytesMin + 1;
constexpr size_t kEvaluationBytesMin = 4 * kTextBytesMin + 1 + 2 * sizeof(int64_t) + sizeof(uint32_t);
constexpr size_t kListedShardBytes = sizeof(uint32_t) + sizeof(uint64_t) + 16;
constexpr size_t kReferenceBytes = sizeof(int64_t) + 16 + 2 * sizeof(uint32_t);
constexpr size_t kPhaseBytesMin = 2 * kTextBytesMin + 4 * sizeof(int64_t);

// What an attempt begins with.
constexpr uint8_t kNoAttempt = 0;
constexpr uint8_t kAttempt = 1;

// Text with replacement characters in the place of what is not UTF-8.
std::string Replaced(std::string_view text) {
  ScopedJson written(ParseJson(DumpJson(ScopedJson(Json(std::string(text))))));
  return written->get<std::string>();
}

}  // namespace

void RecordWriter::Fail(std::string_view field, std::string_view why) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(fmt::format("{} {}", field, why));
}

void RecordWriter::PutCount(size_t count) {
  if (count > std::numeric_limits<uint32_t>::max()) return Fail("a text or list", "has more than 4294967295 elements");
  out_.Put<uint32_t>(static_cast<uint32_t>(count));
}

void RecordWriter::PutName(std::string_view name) {
  PutCount(name.size());
  out_.PutText(name);
}

void RecordWriter::PutText(std::string_view text) { IsUtf8(text) ? PutName(text) : PutName(Replaced(text)); }

void RecordWriter::PutId(std::string_view field, std::string_view id) {
  const auto bytes = FromHex(id);
  if (!bytes) return Fail(field, fmt::format("{} is not 32 hexadecimal digits", QuotedName(id)));
  out_.PutBytes16(*bytes);
}

void RecordWriter::PutAttempt(std::string_view field, std::string_view attempt) {
  out_.Put<uint8_t>(attempt.empty() ? kNoAttempt : kAttempt);
  if (!attempt.empty()) PutId(field, attempt);
}

void RecordWriter::PutTexts(const std::vector<std::string>& texts) {
  PutCount(texts.size());
  for (const std::string& text : texts) PutName(text);
}

template <typename Map>
std::optional<Map> RecordWriter::ReplaceNames(const Map& map) {
  const auto is_text = [](const auto& pair) { return IsUtf8(pair.first); };
  if (std::all_of(map.begin(), map.end(), is_text)) return std::nullopt;
  Map replaced;
  for (const auto& [name, value] : map) {
    if (replaced.emplace(Replaced(name), value).second) continue;
    Fail("the name of a metric", fmt::format("{} is not UTF-8, and another one would be the same", QuotedName(name)));
  }
  return replaced;
}

void RecordWriter::PutMetrics(const Metrics& metrics) {
  if (const auto replaced = ReplaceNames(metrics)) return PutMetrics(*replaced);
  PutCount(metrics.size());
  for (const auto& [name, value] : metrics) {
    PutName(name);
    out_.PutDouble(value);
  }
}

void RecordWriter::PutModes(const BestModes& modes) {
  if (const auto replaced = ReplaceNames(modes)) return PutModes(*replaced);
  PutCount(modes.size());
  for (const auto& [name, mode] : modes) {
    PutName(name);
    PutNumber(kModeNumbers, mode);
  }
}

void RecordWriter::PutEvaluation(const Evaluation& evaluation) {
  PutName(evaluation.evaluator);
  PutText(evaluation.worker);
  PutNumber(kOutcomeNumbers, evaluation.outcome);
  PutText(evaluation.reason);
  PutText(evaluation.unhealthy);
  PutTime(evaluation.reported);
  PutDuration(evaluation.took);
  // Not replaced: a metric of an evaluator must be found by the name that it was given.
  PutCount(evaluation.metrics.size());
  for (const auto& [name, value] : evaluation.metrics) {
    PutName(name);
    out_.PutDouble(value);
  }
}

void RecordWriter::PutStep(const StepRecord& record) {
  const StepInfo& info = record.info;
  out_.Put<int64_t>(info.step);
  PutNumber(kStateNumbers, info.state);
  PutAttempt("attempt", info.attempt);
  out_.Put<uint64_t>(info.sequence);
  PutTime(info.created);
  PutDuration(info.blocked);
  out_.Put<uint32_t>(info.world_size);
  out_.Put<uint64_t>(info.entry_count);
  out_.Put<uint64_t>(info.logical_bytes);
  out_.Put<uint64_t>(info.stored_bytes);
  out_.Put<uint64_t>(info.reused_bytes);
  PutMetrics(info.metrics);
  PutText(info.reason);
  PutText(info.user_metadata);
  PutBool(info.pinned);
  PutText(info.pin_note);
  PutText(info.kept);
  PutTexts(info.tags);
  PutCount(info.evaluations.size());
  for (const Evaluation& evaluation : info.evaluations) PutEvaluation(evaluation);
  out_.PutBytes16(record.shards.digest().bytes);
  PutCount(record.references.size());
  for (const FileReference& file : record.references) {
    out_.Put<int64_t>(file.step);
    out_.PutBytes16(file.attempt.bytes);
    out_.Put<uint32_t>(file.rank);
    out_.Put<uint32_t>(file.world_size);
  }
}

void RecordWriter::PutPhases(const PhasesRecord& record) {
  out_.Put<int64_t>(record.step);
  PutId("attempt", record.attempt);
  PutCount(record.phases.size());
  for (const SavePhase& phase : record.phases) {
    const PhaseTimes times = TimesOfPhase(phase);
    PutText(phase.name);
    PutText(phase.lane);
    out_.Put<int64_t>(times.begin);
    out_.Put<int64_t>(times.duration);
    out_.Put<int64_t>(times.busy);
    out_.Put<uint64_t>(phase.bytes);
  }
}

void RecordReader::FailRange(std::string_view field, size_t field_bytes, uint64_t lowest, uint64_t highest,
                             uint64_t found) {
  if (ok()) in_.Fail(field, field_bytes, fmt::format("{} to {}", lowest, highest), fmt::format("{}", found));
}

bool RecordReader::GetBool(std::string_view field) {
  const auto value = in_.Get<uint8_t>(field);
  if (value > 1) FailRange(field, sizeof(value), 0, 1, value);
  return value == 1;
}

uint32_t RecordReader::GetCount(size_t item_bytes, std::string_view field) {
  const auto count = in_.Get<uint32_t>(field);
  return in_.CheckCount(count, item_bytes, field) ? count : 0;
}

std::string_view RecordReader::GetText(std::string_view field, size_t bytes_max) {
  const size_t begin = in_.offset();
  const auto size = in_.Get<uint32_t>(field);
  if (size > bytes_max) {
    in_.FailAt(begin, field, fmt::format("at most {} bytes", bytes_max), fmt::format("{}", size));
    return {};
  }
  const std::string_view text = in_.GetText(size, field);
  if (trust_ == Trust::kOwn || IsUtf8(text)) return text;
  in_.FailAt(begin, field, "UTF-8", QuotedName(text));
  return {};
}

int64_t RecordReader::GetStep(std::string_view field) {
  const auto step = in_.Get<int64_t>(field);
  if (step < 0) in_.Fail(field, sizeof(step), "0 or more", fmt::format("{}", step));
  return step;
}

std::string RecordReader::GetId(std::string_view field) { return ToHex(in_.GetBytes16(field)); }

std::string RecordReader::GetAttempt(std::string_view field) {
  const auto kind = in_.Get<uint8_t>(field);
  if (kind == kAttempt) return GetId(field);
  if (kind != kNoAttempt) FailRange(field, sizeof(kind), kNoAttempt, kAttempt, kind);
  return "";
}

std::string RecordReader::GetAttempt(std::string_view field, StepState state) {
  const size_t begin = in_.offset();
  std::string attempt = GetAttempt(field);
  if (attempt.empty() && !MayLackAttempt(state)) {
    in_.FailAt(begin, field, fmt::format("one, since the step is {}", StepStateName(state)), "none");
  }
  return attempt;
}

std::vector<std::string> RecordReader::GetTags(std::string_view field) {
  const size_t begin = in_.offset();
  std::vector<std::string> tags;
  const uint32_t count = GetCount(kTextBytesMin, field);
  if (count > kTagsPerStepMax) FailRange(field, sizeof(count), 0, kTagsPerStepMax, count);
  for (uint32_t i = 0; i < count && ok(); ++i) tags.emplace_back(GetText(field));
  if (const absl::Status status = CheckTags(tags); ok() && !status.ok()) {
    in_.FailAt(begin, field, "sorted, valid tags", std::string(status.message()));
  }
  return tags;
}

template <typename Map, typename GetValue>
Map RecordReader::GetMap(size_t item_bytes, std::string_view field, const GetValue& get_value) {
  Map map;
  const uint32_t count = GetCount(item_bytes, field);
  for (uint32_t i = 0; i < count && ok(); ++i) {
    const size_t begin = in_.offset();
    const std::string_view name = GetText(field);
    const auto value = get_value();
    if (!map.empty() && map.rbegin()->first >= name) {
      in_.FailAt(begin, field, "names in ascending order, each once", QuotedName(name));
    }
    if (ok()) map.emplace_hint(map.end(), name, value);
  }
  return map;
}

Metrics RecordReader::GetMetrics(std::string_view field) {
  return GetMap<Metrics>(kMetricBytesMin, field, [&] { return in_.GetDouble(field); });
}

BestModes RecordReader::GetModes() {
  return GetMap<BestModes>(kModeBytesMin, "modes", [&] { return GetNumber(kModeNumbers, "mode"); });
}

Evaluation RecordReader::GetEvaluation() {
  const size_t begin = in_.offset();
  Evaluation evaluation;
  evaluation.evaluator = GetText("evaluator");
  evaluation.worker = GetText("worker");
  evaluation.outcome = GetNumber(kOutcomeNumbers, "outcome");
  evaluation.reason = GetText("reason of the evaluation");
  evaluation.unhealthy = GetText("unhealthy");
  evaluation.reported = GetTime("reported");
  evaluation.took = GetDuration("took");
  if (evaluation.took < absl::ZeroDuration()) {
    in_.Fail("took", sizeof(int64_t), "0 or more", absl::FormatDuration(evaluation.took));
  }
  evaluation.metrics = GetMetrics("metrics of the evaluation");
  if (trust_ == Trust::kOwn || !ok()) return evaluation;
  if (const absl::Status status = ValidateEvaluation(evaluation); !status.ok()) {
    in_.FailAt(begin, "evaluation", "a valid one", std::string(status.message()));
  }
  return evaluation;
}

void RecordReader::GetStepNumbers(StepInfo& info) {
  info.step = GetStep("step");
  info.state = GetNumber(kStateNumbers, "state");
  info.attempt = GetAttempt("attempt", info.state);
  info.sequence = in_.Get<uint64_t>("sequence");
  info.created = GetTime("created");
  info.blocked = GetDuration("blocked");
  info.world_size = in_.Get<uint32_t>("world size");
  info.entry_count = in_.Get<uint64_t>("count of entries");
  info.logical_bytes = in_.Get<uint64_t>("logical bytes");
  info.stored_bytes = in_.Get<uint64_t>("stored bytes");
  info.reused_bytes = in_.Get<uint64_t>("reused bytes");
}

ShardsDigest RecordReader::GetListedShards() {
  ShardsDigest shards;
  const uint32_t count = GetCount(kListedShardBytes, "shards");
  for (uint32_t i = 0; i < count && ok(); ++i) {
    const auto rank = in_.Get<uint32_t>("rank of a shard");
    const auto file_bytes = in_.Get<uint64_t>("bytes of a shard");
    shards.Add(rank, file_bytes, Digest128{in_.GetBytes16("index digest of a shard")});
  }
  return shards;
}

StepRecord RecordReader::GetStep(uint16_t version) {
  StepRecord record;
  StepInfo& info = record.info;
  GetStepNumbers(info);
  info.metrics = GetMetrics("metrics");
  info.reason = GetText("reason");
  info.user_metadata = GetText("user metadata");
  info.pinned = GetBool("pinned");
  info.pin_note = GetText("note of the pin");
  info.kept = GetText("kept");
  const size_t tags_at = in_.offset();
  info.tags = GetTags("tags");
  if (!info.pinned && !info.tags.empty()) in_.FailAt(tags_at, "tags", "none, since the step is not pinned", "some");
  const uint32_t evaluations = GetCount(kEvaluationBytesMin, "evaluations");
  info.evaluations.reserve(evaluations);
  for (uint32_t i = 0; i < evaluations && ok(); ++i) {
    const size_t begin = in_.offset();
    info.evaluations.push_back(GetEvaluation());
    if (i > 0 && info.evaluations[i - 1].evaluator >= info.evaluations[i].evaluator) {
      in_.FailAt(begin, "evaluations", "evaluators in ascending order, each once",
                 QuotedName(info.evaluations[i].evaluator));
    }
  }
  record.shards = version == 1 ? GetListedShards() : ShardsDigest(Digest128{in_.GetBytes16("digest of the shards")});
  const uint32_t references = GetCount(kReferenceBytes, "references");
  record.references.reserve(references);
  for (uint32_t i = 0; i < references && ok(); ++i) {
    FileReference& file = record.references.emplace_back();
    file.step = GetStep("step of a reference");
    file.attempt = AttemptId{in_.GetBytes16("attempt of a reference")};
    file.rank = in_.Get<uint32_t>("rank of a reference");
    file.world_size = in_.Get<uint32_t>("world size of a reference");
  }
  return record;
}

absl::Duration RecordReader::GetMicroseconds(std::string_view field) {
  const auto microseconds = in_.Get<int64_t>(field);
  if (microseconds >= 0 && microseconds <= kPhaseMicrosecondsMax) return absl::Microseconds(microseconds);
  in_.Fail(field, sizeof(microseconds), fmt::format("0 to {}", kPhaseMicrosecondsMax), fmt::format("{}", microseconds));
  return absl::ZeroDuration();
}

PhasesRecord RecordReader::GetPhases() {
  PhasesRecord record;
  record.step = GetStep("step");
  record.attempt = GetId("attempt");
  const uint32_t count = GetCount(kPhaseBytesMin, "phases");
  record.phases.reserve(count);
  for (uint32_t i = 0; i < count && ok(); ++i) {
    SavePhase& phase = record.phases.emplace_back();
    phase.name = GetText("name of a phase");
    phase.lane = GetText("lane of a phase");
    phase.begin = GetMicroseconds("begin of a phase");
    phase.duration = GetMicroseconds("duration of a phase");
    if (phase.begin + phase.duration > absl::Microseconds(kPhaseMicrosecondsMax)) {
      in_.Fail("duration of a phase", sizeof(int64_t), "an end within its range", absl::FormatDuration(phase.duration));
    }
    phase.busy = GetMicroseconds("busy time of a phase");
    if (phase.busy > phase.duration) {
      in_.Fail("busy time of a phase", sizeof(int64_t), "at most its duration", absl::FormatDuration(phase.busy));
    }
    phase.bytes = in_.Get<uint64_t>("bytes of a phase");
  }
  return record;
}

std::optional<double> RecordReader::FindMetricOfStep(std::string_view metric) {
  StepInfo numbers;
  GetStepNumbers(numbers);
  const uint32_t count = GetCount(kMetricBytesMin, "metrics");
  for (uint32_t i = 0; i < count && ok(); ++i) {
    const std::string_view name = GetText("metrics");
    const double value = in_.GetDouble("metrics");
    if (name == metric) return value;
  }
  return std::nullopt;
}

}  // namespace tidemark::storage
