#include "storage/manifest/manifest_records.h"

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tidemark::storage {
namespace {

using Json = nlohmann::json;

Json EncodeNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

double DecodeNumber(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const std::string& text = json.get_ref<const std::string&>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument(fmt::format("'{}' is no number", text));
}

template <typename Id>
Id DecodeId(const Json& json) {
  const auto bytes = FromHex(json.get_ref<const std::string&>());
  if (!bytes) throw std::invalid_argument("an id is not 32 hexadecimal digits");
  return Id{*bytes};
}

// An unsigned number in its own range; the library would let a negative one wrap around.
template <typename T>
T DecodeUnsigned(const Json& json) {
  if (!json.is_number_unsigned()) throw std::invalid_argument("a count is not an unsigned number");
  const uint64_t value = json.get<uint64_t>();
  if (value > std::numeric_limits<T>::max()) throw std::invalid_argument(fmt::format("{} is too large", value));
  return static_cast<T>(value);
}

int64_t DecodeStep(const Json& json) {
  if (!json.is_number_integer() || json.get<int64_t>() < 0) throw std::invalid_argument("a step is not a number >= 0");
  return json.get<int64_t>();
}

StepState DecodeState(std::string_view name) {
  for (StepState state : {StepState::kCommitted, StepState::kDamaged, StepState::kLost, StepState::kFailed}) {
    if (name == StepStateName(state)) return state;
  }
  throw std::invalid_argument(fmt::format("state '{}' is unknown", name));
}

// Text that is not UTF-8 (a path in a reason) is written with replacement characters rather than refused.
std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Parses `bytes` and hands the object to `decode`, whose exceptions (ours and the library's) become kDataLoss.
template <typename Record>
absl::StatusOr<Record> Decode(std::string_view bytes, std::string_view what,
                              const std::function<Record(const Json&)>& decode, int version_max = kManifestVersion) {
  try {
    const Json json = Json::parse(bytes);
    const int64_t version = json.at("version").get<int64_t>();
    if (version > version_max) {
      return absl::UnimplementedError(
          fmt::format("{} record has version {}; this library reads up to {}", what, version, version_max));
    }
    if (version < 1) throw std::invalid_argument(fmt::format("version {} never existed", version));
    return decode(json);
  } catch (const std::exception& error) {
    return absl::DataLossError(fmt::format("{} record of {} bytes: {}", what, bytes.size(), error.what()));
  }
}

}  // namespace

std::string EncodeStoreRecord(const StoreRecord& record) {
  return Dump({{"version", record.indexed ? kStoreRecordVersion : 1},
               {"store_id", ToHex(record.store_id.bytes)},
               {"sequence", record.sequence}});
}

absl::StatusOr<StoreRecord> DecodeStoreRecord(std::string_view bytes) {
  const auto decode = [](const Json& json) {
    return StoreRecord{.store_id = DecodeId<StoreId>(json.at("store_id")),
                       .sequence = DecodeUnsigned<uint64_t>(json.at("sequence")),
                       .indexed = json.at("version").get<int64_t>() >= kStoreRecordVersion};
  };
  return Decode<StoreRecord>(bytes, "store", decode, kStoreRecordVersion);
}

std::string EncodeDeletionRecord(const DeletionRecord& record) {
  return Dump({{"version", kManifestVersion}, {"step", record.step}, {"attempt", ToHex(record.attempt.bytes)}});
}

absl::StatusOr<DeletionRecord> DecodeDeletionRecord(std::string_view bytes) {
  return Decode<DeletionRecord>(bytes, "deletion", [](const Json& json) {
    return DeletionRecord{.step = DecodeStep(json.at("step")), .attempt = DecodeId<AttemptId>(json.at("attempt"))};
  });
}

std::string EncodeDirectoryStamp(const DirectoryStamp& stamp) {
  return Dump({{"version", kManifestVersion},
               {"inode", stamp.inode},
               {"links", stamp.links},
               {"modified_unix_ns", stamp.modified_unix_ns},
               {"changed_unix_ns", stamp.changed_unix_ns}});
}

absl::StatusOr<DirectoryStamp> DecodeDirectoryStamp(std::string_view bytes) {
  return Decode<DirectoryStamp>(bytes, "settled", [](const Json& json) {
    return DirectoryStamp{.inode = DecodeUnsigned<uint64_t>(json.at("inode")),
                          .links = DecodeUnsigned<uint64_t>(json.at("links")),
                          .modified_unix_ns = json.at("modified_unix_ns").get<int64_t>(),
                          .changed_unix_ns = json.at("changed_unix_ns").get<int64_t>()};
  });
}

std::string EncodeStepRecord(const StepRecord& record) {
  const StepInfo& info = record.info;
  Json metrics = Json::object();
  for (const auto& [name, value] : info.metrics) metrics[name] = EncodeNumber(value);
  Json shards = Json::array();
  for (const RecordedShard& shard : record.shards) {
    shards.push_back(
        {{"rank", shard.rank}, {"file_bytes", shard.file_bytes}, {"index_digest", ToHex(shard.index_digest.bytes)}});
  }
  Json references = Json::array();
  for (const FileReference& file : record.references) {
    references.push_back({{"step", file.step},
                          {"attempt", ToHex(file.attempt.bytes)},
                          {"rank", file.rank},
                          {"world_size", file.world_size}});
  }
  return Dump({{"version", kManifestVersion},
               {"step", info.step},
               {"state", StepStateName(info.state)},
               {"attempt", info.attempt},
               {"sequence", info.sequence},
               {"created_unix_ns", absl::ToUnixNanos(info.created)},
               {"blocked_ns", absl::ToInt64Nanoseconds(info.blocked)},
               {"world_size", info.world_size},
               {"entry_count", info.entry_count},
               {"logical_bytes", info.logical_bytes},
               {"stored_bytes", info.stored_bytes},
               {"reused_bytes", info.reused_bytes},
               {"reason", info.reason},
               {"user_metadata", info.user_metadata},
               {"metrics", std::move(metrics)},
               {"shards", std::move(shards)},
               {"references", std::move(references)}});
}

absl::StatusOr<StepRecord> DecodeStepRecord(std::string_view bytes) {
  return Decode<StepRecord>(bytes, "step", [](const Json& json) {
    StepRecord record;
    StepInfo& info = record.info;
    info.step = DecodeStep(json.at("step"));
    info.state = DecodeState(json.at("state").get<std::string>());
    info.attempt = json.at("attempt").get<std::string>();
    if (!(info.state == StepState::kFailed && info.attempt.empty())) DecodeId<AttemptId>(json.at("attempt"));
    info.sequence = DecodeUnsigned<uint64_t>(json.at("sequence"));
    info.created = absl::FromUnixNanos(json.at("created_unix_ns").get<int64_t>());
    info.blocked = absl::Nanoseconds(json.at("blocked_ns").get<int64_t>());
    info.world_size = DecodeUnsigned<uint32_t>(json.at("world_size"));
    info.entry_count = DecodeUnsigned<uint64_t>(json.at("entry_count"));
    info.logical_bytes = DecodeUnsigned<uint64_t>(json.at("logical_bytes"));
    info.stored_bytes = DecodeUnsigned<uint64_t>(json.at("stored_bytes"));
    info.reused_bytes = DecodeUnsigned<uint64_t>(json.at("reused_bytes"));
    info.reason = json.at("reason").get<std::string>();
    info.user_metadata = json.at("user_metadata").get<std::string>();
    for (const auto& [name, value] : json.at("metrics").items()) info.metrics[name] = DecodeNumber(value);
    for (const Json& shard : json.at("shards")) {
      record.shards.push_back({.rank = DecodeUnsigned<uint32_t>(shard.at("rank")),
                               .file_bytes = DecodeUnsigned<uint64_t>(shard.at("file_bytes")),
                               .index_digest = DecodeId<Digest128>(shard.at("index_digest"))});
    }
    for (const Json& file : json.at("references")) {
      record.references.push_back({.step = DecodeStep(file.at("step")),
                                   .attempt = DecodeId<AttemptId>(file.at("attempt")),
                                   .rank = DecodeUnsigned<uint32_t>(file.at("rank")),
                                   .world_size = DecodeUnsigned<uint32_t>(file.at("world_size"))});
    }
    return record;
  });
}

std::string StepKey(int64_t step) {
  std::string key(kStepKeyPrefix);
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(static_cast<uint64_t>(step) >> shift));
  return key;
}

std::string DeletionKey(const AttemptId& attempt) { return std::string(kDeletionKeyPrefix) + ToHex(attempt.bytes); }

}  // namespace tidemark::storage

namespace tidemark {

std::string_view StepStateName(StepState state) {
  switch (state) {
    case StepState::kCommitted:
      return "committed";
    case StepState::kDamaged:
      return "damaged";
    case StepState::kLost:
      return "lost";
    case StepState::kFailed:
      return "failed";
    case StepState::kDeleted:
      return "deleted";
    case StepState::kUnsaved:
      return "unsaved";
  }
  return "";
}

}  // namespace tidemark
