#include "storage/records/phases_record.h"

#include <algorithm>
#include <utility>

#include "storage/records/json_fields.h"
#include "storage/records/manifest_records.h"

namespace tidemark::storage {
namespace {

int64_t Microseconds(absl::Duration duration) {
  return std::clamp<int64_t>(absl::ToInt64Microseconds(duration), 0, kPhaseMicrosecondsMax);
}

ScopedJson EncodeSpan(const SavePhase& phase) {
  const PhaseTimes times = TimesOfPhase(phase);
  ScopedJson span(Json::array());
  for (const int64_t time : {times.begin, times.duration, times.busy}) span->push_back(time);
  span->push_back(phase.bytes);
  return span;
}

absl::Duration DecodeTime(const Json& json) {
  const int64_t microseconds = DecodeInt64(json);
  if (microseconds < 0 || microseconds > kPhaseMicrosecondsMax)
    throw std::invalid_argument("a time is out of its range");
  return absl::Microseconds(microseconds);
}

SavePhase DecodeSpan(const Json& json, const std::string& name, const std::string& lane) {
  if (!json.is_array() || json.size() != 4) throw std::invalid_argument("a phase is not an array of four numbers");
  SavePhase phase{.name = name, .lane = lane};
  phase.begin = DecodeTime(json[0]);
  phase.duration = DecodeTime(json[1]);
  phase.busy = DecodeTime(json[2]);
  phase.bytes = DecodeUnsigned<uint64_t>(json[3]);
  if (phase.busy > phase.duration) throw std::invalid_argument("a phase was busy for longer than it took");
  if (phase.begin + phase.duration > absl::Microseconds(kPhaseMicrosecondsMax)) {
    throw std::invalid_argument("a phase ends beyond its range");
  }
  return phase;
}

}  // namespace

PhaseTimes TimesOfPhase(const SavePhase& phase) {
  const int64_t begin = Microseconds(phase.begin);
  const int64_t duration = Microseconds(phase.begin + phase.duration) - begin;
  return {.begin = begin, .duration = duration, .busy = std::min(duration, Microseconds(phase.busy))};
}

std::string EncodePhasesRecord(const PhasesRecord& record) {
  ScopedJson lanes(Json::array());
  const SavePhase* last = nullptr;
  for (const SavePhase& phase : record.phases) {
    if (last == nullptr || phase.name != last->name || phase.lane != last->lane) {
      lanes->push_back(std::move(*JsonObject("name", phase.name, "lane", phase.lane, "spans", Json::array())));
    }
    lanes->back()["spans"].push_back(std::move(*EncodeSpan(phase)));
    last = &phase;
  }
  return DumpJson(JsonObject("version", kPhasesRecordVersion, "attempt", record.attempt, "lanes", std::move(lanes)));
}

absl::StatusOr<PhasesRecord> DecodePhasesRecord(std::string_view bytes) {
  const auto decode = [](const Json& json) {
    PhasesRecord record;
    record.attempt = ToHex(DecodeId<AttemptId>(json.at("attempt")).bytes);
    if (!json.at("lanes").is_array()) throw std::invalid_argument("lanes are not an array");
    for (const Json& lane : json.at("lanes")) {
      const auto name = lane.at("name").get<std::string>();
      const auto thread = lane.at("lane").get<std::string>();
      if (!lane.at("spans").is_array()) throw std::invalid_argument("spans are not an array");
      for (const Json& span : lane.at("spans")) record.phases.push_back(DecodeSpan(span, name, thread));
    }
    return record;
  };
  return DecodeJson<PhasesRecord>("phases record", bytes, kPhasesRecordVersion, decode);
}

std::string PhasesKey(int64_t step) {
  return std::string(kPhasesKeyPrefix) + StepKey(step).substr(kStepKeyPrefix.size());
}

}  // namespace tidemark::storage
