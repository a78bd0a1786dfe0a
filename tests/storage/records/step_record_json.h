// A step's record as text: as in the first format's manifest, but with a digest in place of the list of shards.

#ifndef TIDEMARK_TESTS_STORAGE_RECORDS_STEP_RECORD_JSON_H_
#define TIDEMARK_TESTS_STORAGE_RECORDS_STEP_RECORD_JSON_H_

#include <string>
#include <utility>

#include "storage/records/json_fields.h"
#include "storage/records/manifest_records.h"

namespace tidemark::storage {

inline std::string EncodeStepRecord(const StepRecord& record) {
  const StepInfo& info = record.info;
  ScopedJson json(Json::object());
  Json& fields = *json;
  fields["version"] = kStepRecordVersion;
  fields["step"] = info.step;
  fields["state"] = StepStateName(info.state);
  fields["attempt"] = info.attempt;
  fields["sequence"] = info.sequence;
  fields["created_unix_ns"] = absl::ToUnixNanos(info.created);
  fields["blocked_ns"] = absl::ToInt64Nanoseconds(info.blocked);
  fields["world_size"] = info.world_size;
  fields["entry_count"] = info.entry_count;
  fields["logical_bytes"] = info.logical_bytes;
  fields["stored_bytes"] = info.stored_bytes;
  fields["reused_bytes"] = info.reused_bytes;
  fields["reason"] = info.reason;
  fields["user_metadata"] = info.user_metadata;
  fields["metrics"] = std::move(*EncodeMetrics(info.metrics));
  fields["pinned"] = info.pinned;
  fields["pin_note"] = info.pin_note;
  fields["kept"] = info.kept;
  Json& evaluations = fields["evaluations"] = Json::array();
  for (const Evaluation& evaluation : info.evaluations) evaluations.push_back(std::move(*EncodeEvaluation(evaluation)));
  fields["shards_digest"] = ToHex(record.shards.digest().bytes);
  Json& references = fields["references"] = Json::array();
  for (const FileReference& file : record.references) {
    references.push_back(std::move(*JsonObject("step", file.step, "attempt", ToHex(file.attempt.bytes), "rank",
                                               file.rank, "world_size", file.world_size)));
  }
  // So that a record without any is what it was before there were tags.
  if (!info.tags.empty()) fields["tags"] = info.tags;
  return DumpJson(std::move(json));
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RECORDS_STEP_RECORD_JSON_H_
