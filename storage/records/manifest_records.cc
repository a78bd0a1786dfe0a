#include "storage/records/manifest_records.h"

#include <stdexcept>
#include <utility>

#include "fmt/format.h"
#include "storage/records/json_fields.h"
#include "storage/records/tag.h"

namespace tidemark::storage {
namespace {

StepState DecodeState(std::string_view name) {
  for (StepState state : {StepState::kCommitted, StepState::kDamaged, StepState::kLost, StepState::kFailed,
                          StepState::kDeleted, StepState::kUnsaved}) {
    if (name == StepStateName(state)) return state;
  }
  throw std::invalid_argument(fmt::format("state '{}' is unknown", name));
}

// What a step record has from version 2 on.
void DecodeOpinions(const Json& json, StepInfo& info) {
  if (!json.at("evaluations").is_array()) throw std::invalid_argument("evaluations are not an array");
  for (const Json& row : json.at("evaluations")) info.evaluations.push_back(DecodeEvaluation(row));
  info.pinned = json.at("pinned").get<bool>();
  info.pin_note = json.at("pin_note").get<std::string>();
  info.kept = json.at("kept").get<std::string>();
  const auto tags = json.find("tags");
  if (tags == json.end()) return;
  if (!tags->is_array()) throw std::invalid_argument("tags are not an array");
  for (const Json& tag : *tags) info.tags.push_back(tag.get<std::string>());
  if (absl::Status status = CheckTags(info.tags); !status.ok()) {
    throw std::invalid_argument(std::string(status.message()));
  }
  if (!info.pinned && !info.tags.empty()) throw std::invalid_argument("it has tags but is not pinned");
}

// Up to version 2 the shards are listed.
ShardsDigest DecodeShards(const Json& json) {
  if (json.at("version").get<int64_t>() >= 3) return ShardsDigest(DecodeId<Digest128>(json.at("shards_digest")));
  ShardsDigest shards;
  for (const Json& shard : json.at("shards")) {
    shards.Add(DecodeUnsigned<uint32_t>(shard.at("rank")), DecodeUnsigned<uint64_t>(shard.at("file_bytes")),
               DecodeId<Digest128>(shard.at("index_digest")));
  }
  return shards;
}

}  // namespace

bool MayHaveFiles(StepState state) {
  return state == StepState::kCommitted || state == StepState::kDamaged || state == StepState::kLost;
}

bool MayLackAttempt(StepState state) { return state == StepState::kFailed || state == StepState::kUnsaved; }

std::optional<DeletionRecord> DeletionOf(const StepRecord& record) {
  const auto attempt = FromHex(record.info.attempt);
  if (!attempt || record.info.state == StepState::kDeleted) return std::nullopt;
  DeletionRecord deletion{.step = record.info.step, .attempt = AttemptId{*attempt}};
  for (const FileReference& file : record.references) deletion.references.push_back(file.attempt);
  return deletion;
}

void MakeDeleted(StepRecord& record, std::string_view reason) {
  record.info.state = StepState::kDeleted;
  record.info.reason = reason;
  record.info.user_metadata = "{}";
  record.info.kept.clear();
  record.info.pinned = false;
  record.info.pin_note.clear();
  record.info.tags.clear();
  record.shards = {};
  record.references.clear();
}

std::string EncodeStoreRecord(const StoreRecord& record) {
  return DumpJson(
      JsonObject("version", record.version, "store_id", ToHex(record.store_id.bytes), "sequence", record.sequence));
}

absl::StatusOr<StoreRecord> DecodeStoreRecord(std::string_view bytes) {
  const auto decode = [](const Json& json) {
    return StoreRecord{.store_id = DecodeId<StoreId>(json.at("store_id")),
                       .sequence = DecodeUnsigned<uint64_t>(json.at("sequence")),
                       .version = json.at("version").get<int>()};
  };
  return DecodeJson<StoreRecord>("store record", bytes, kStoreRecordVersion, decode);
}

std::string EncodeDeletionRecord(const DeletionRecord& record) {
  ScopedJson references(Json::array());
  for (const AttemptId& attempt : record.references) references->push_back(ToHex(attempt.bytes));
  return DumpJson(JsonObject("version", kDeletionRecordVersion, "step", record.step, "attempt",
                             ToHex(record.attempt.bytes), "references", std::move(references)));
}

absl::StatusOr<DeletionRecord> DecodeDeletionRecord(std::string_view bytes) {
  const auto decode = [](const Json& json) {
    DeletionRecord record{.step = DecodeStep(json.at("step")), .attempt = DecodeId<AttemptId>(json.at("attempt"))};
    if (json.at("version").get<int64_t>() < 2) return record;
    for (const Json& attempt : json.at("references")) record.references.push_back(DecodeId<AttemptId>(attempt));
    return record;
  };
  return DecodeJson<DeletionRecord>("deletion record", bytes, kDeletionRecordVersion, decode);
}

absl::StatusOr<StepRecord> DecodeStepRecord(std::string_view bytes) {
  const auto decode = [](const Json& json) {
    StepRecord record;
    StepInfo& info = record.info;
    info.step = DecodeStep(json.at("step"));
    info.state = DecodeState(json.at("state").get<std::string>());
    info.attempt = json.at("attempt").get<std::string>();
    if (!(MayLackAttempt(info.state) && info.attempt.empty())) DecodeId<AttemptId>(json.at("attempt"));
    info.sequence = DecodeUnsigned<uint64_t>(json.at("sequence"));
    info.created = absl::FromUnixNanos(DecodeInt64(json.at("created_unix_ns")));
    info.blocked = absl::Nanoseconds(DecodeInt64(json.at("blocked_ns")));
    info.world_size = DecodeUnsigned<uint32_t>(json.at("world_size"));
    info.entry_count = DecodeUnsigned<uint64_t>(json.at("entry_count"));
    info.logical_bytes = DecodeUnsigned<uint64_t>(json.at("logical_bytes"));
    info.stored_bytes = DecodeUnsigned<uint64_t>(json.at("stored_bytes"));
    info.reused_bytes = DecodeUnsigned<uint64_t>(json.at("reused_bytes"));
    info.reason = json.at("reason").get<std::string>();
    info.user_metadata = json.at("user_metadata").get<std::string>();
    info.metrics = DecodeMetrics(json.at("metrics"));
    if (json.at("version").get<int64_t>() >= 2) DecodeOpinions(json, info);
    record.shards = DecodeShards(json);
    for (const Json& file : json.at("references")) {
      record.references.push_back({.step = DecodeStep(file.at("step")),
                                   .attempt = DecodeId<AttemptId>(file.at("attempt")),
                                   .rank = DecodeUnsigned<uint32_t>(file.at("rank")),
                                   .world_size = DecodeUnsigned<uint32_t>(file.at("world_size"))});
    }
    return record;
  };
  return DecodeJson<StepRecord>("step record", bytes, kStepRecordVersion, decode);
}

std::string StepKey(int64_t step) {
  std::string key(kStepKeyPrefix);
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(static_cast<uint64_t>(step) >> shift));
  return key;
}

std::string DeletionKey(const AttemptId& attempt) { return std::string(kDeletionKeyPrefix) + ToHex(attempt.bytes); }

}  // namespace tidemark::storage
