#include "storage/store/attempt_reader.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/functional/function_ref.h"
#include "fmt/format.h"
#include "storage/records/json_fields.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

// What a record can hold; nearly 300 years.
constexpr uint64_t kBlockedMax = std::numeric_limits<int64_t>::max();

constexpr std::string_view kShardBegin = "shard-";

// The world size in a name that ShardFileName gave.
std::optional<uint32_t> WorldSizeOf(std::string_view name) {
  constexpr std::string_view kMiddle = "-of-";
  constexpr std::string_view kEnd = ".tmk";
  if (!name.starts_with(kShardBegin) || !name.ends_with(kEnd)) return std::nullopt;
  name.remove_prefix(kShardBegin.size());
  name.remove_suffix(kEnd.size());
  const size_t middle = name.find(kMiddle);
  if (middle == std::string_view::npos) return std::nullopt;
  const std::string_view size = name.substr(middle + kMiddle.size());
  uint32_t world_size = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), world_size);
  if (error != std::errc() || end != size.data() + size.size() || world_size == 0) return std::nullopt;
  return world_size;
}

absl::StatusOr<uint32_t> FindWorldSize(FileSystem& files, const std::string& path) {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(path);
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (const auto world_size = WorldSizeOf(entry.name)) return *world_size;
  }
  return absl::NotFoundError(fmt::format("{}: it holds no shard", path));
}

absl::Status CheckIdentity(const ShardReader& shard, const StoreId& store, const StepFolder& folder, uint32_t rank,
                           uint32_t world_size) {
  const ShardIdentity& identity = shard.header().identity;
  if (identity.store != store) {
    return absl::FailedPreconditionError(fmt::format("{}: it belongs to store {}, this one is {}", shard.path(),
                                                     ToHex(identity.store.bytes), ToHex(store.bytes)));
  }
  if (identity.step != folder.step || identity.attempt != folder.attempt || identity.rank != rank ||
      identity.world_size != world_size) {
    return absl::DataLossError(fmt::format("{}: its header is that of step {}, attempt {}, rank {} of {}", shard.path(),
                                           identity.step, ToHex(identity.attempt.bytes), identity.rank,
                                           identity.world_size));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShardReader>> OpenFirstShard(FileSystem& files, const StoreLayout& layout,
                                                            const StepFolder& folder) {
  const absl::StatusOr<uint32_t> world_size = FindWorldSize(files, layout.attempt(folder.step, folder.attempt));
  if (!world_size.ok()) return world_size.status();
  return ShardReader::Open(files, layout.shard(folder.step, folder.attempt, 0, *world_size), layout.steps());
}

// The shard itself says nothing, as opposed to the disk under it.
bool IsUnreadable(const absl::Status& status) { return IsMissingOrDamaged(status) || absl::IsUnimplemented(status); }

// Puts the record together, shard by shard, from rank 0 on.
class RecordMaker {
 public:
  void Add(const ShardReader& shard) {
    StepInfo& info = record_.info;
    const ShardIndex& index = shard.index();
    if (record_.info.attempt.empty()) Begin(shard.header().identity, index);
    info.entry_count += index.entries.size();
    info.stored_bytes += shard.footer().file_bytes;
    for (const ChunkRecord& chunk : index.chunks) {
      info.logical_bytes += chunk.raw_bytes;
      if (chunk.file != 0) info.reused_bytes += chunk.stored_bytes;
    }
    record_.shards.Add(shard.header().identity.rank, shard.footer().file_bytes, shard.footer().index_digest);
    for (const FileReference& file : index.files) {
      // A list may have 65535 of them, and a shard that means harm has as many as there can be.
      if (seen_.emplace(file.attempt, file.step, file.rank, file.world_size).second) record_.references.push_back(file);
    }
  }
  StepRecord Take() { return std::move(record_); }

 private:
  void Begin(const ShardIdentity& identity, const ShardIndex& first) {
    StepInfo& info = record_.info;
    info.step = identity.step;
    info.attempt = ToHex(identity.attempt.bytes);
    info.sequence = identity.sequence;
    info.world_size = identity.world_size;
    info.created = absl::FromUnixNanos(first.created_unix_ns);
    info.blocked = absl::Nanoseconds(static_cast<int64_t>(std::min(first.blocked_ns, kBlockedMax)));
    // Of names that are no UTF-8, which only another library writes, two may become one in a record.
    ScopedJson metrics(ParseJson(DumpJson(EncodeMetrics(first.metrics))));
    info.metrics = DecodeMetrics(*metrics);
    info.user_metadata = first.user_metadata;
  }

  StepRecord record_;
  std::set<std::tuple<AttemptId, int64_t, uint32_t, uint32_t>> seen_;
};

// Opens shard after shard, checks whose it is and hands it to `take`.
absl::Status ForEachShard(FileSystem& files, const StoreLayout& layout, const StoreId& store, const StepFolder& folder,
                          absl::FunctionRef<void(std::unique_ptr<ShardReader>)> take) {
  absl::StatusOr<uint32_t> world_size = FindWorldSize(files, layout.attempt(folder.step, folder.attempt));
  if (!world_size.ok()) return world_size.status();
  for (uint32_t rank = 0; rank < *world_size; ++rank) {
    auto shard = ReadShard(files, layout, store, folder, rank, *world_size);
    if (!shard.ok()) return shard.status();
    take(*std::move(shard));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardReader>> ReadShard(FileSystem& files, const StoreLayout& layout,
                                                       const StoreId& store, const StepFolder& folder, uint32_t rank,
                                                       uint32_t world_size) {
  auto shard = ShardReader::Open(files, layout.shard(folder.step, folder.attempt, rank, world_size), layout.steps());
  if (!shard.ok()) return shard.status();
  if (absl::Status status = CheckIdentity(**shard, store, folder, rank, world_size); !status.ok()) return status;
  return shard;
}

absl::StatusOr<Attempt> ReadAttempt(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                    const StepFolder& folder) {
  Attempt attempt;
  RecordMaker record;
  absl::Status status = ForEachShard(files, layout, store, folder, [&](std::unique_ptr<ShardReader> shard) {
    record.Add(*shard);
    attempt.shards.push_back(std::move(shard));
  });
  if (!status.ok()) return status;
  attempt.record = record.Take();
  return attempt;
}

absl::StatusOr<StepRecord> ReadAttemptRecord(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                             const StepFolder& folder) {
  RecordMaker record;
  absl::Status status =
      ForEachShard(files, layout, store, folder, [&](std::unique_ptr<ShardReader> shard) { record.Add(*shard); });
  if (!status.ok()) return status;
  return record.Take();
}

bool IsAboutAttempt(const absl::Status& status) {
  return IsMissingOrDamaged(status) || absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status);
}

absl::StatusOr<std::vector<uint32_t>> FindRanks(FileSystem& files, const StoreLayout& layout, const StepFolder& folder,
                                                uint32_t world_size) {
  const absl::StatusOr<std::vector<DirectoryEntry>> entries =
      files.ListDirectory(layout.attempt(folder.step, folder.attempt));
  std::vector<uint32_t> ranks;
  if (!entries.ok())
    return absl::IsNotFound(entries.status()) ? ranks : absl::StatusOr<std::vector<uint32_t>>(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    uint32_t rank = 0;
    if (!entry.name.starts_with(kShardBegin)) continue;
    const char* const digits = entry.name.data() + kShardBegin.size();
    if (std::from_chars(digits, entry.name.data() + entry.name.size(), rank).ec != std::errc()) continue;
    if (rank < world_size && entry.name == ShardFileName(rank, world_size)) ranks.push_back(rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

absl::Status CheckShards(const StepRecord& found, const StepRecord& committed, std::string_view path) {
  if (found.shards == committed.shards && found.info.world_size == committed.info.world_size) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("{}: its shards differ in number, size or digest from those that were committed", path));
}

absl::StatusOr<std::vector<StepFolder>> ListAttempts(FileSystem& files, const StoreLayout& layout,
                                                     std::vector<std::string>* strangers) {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.steps());
  if (!entries.ok()) return entries.status();
  std::vector<StepFolder> folders;
  for (const DirectoryEntry& entry : *entries) {
    const auto folder = ParseStepFolderName(entry.name);
    if (folder && entry.type == FileType::kDirectory) {
      folders.push_back(*folder);
    } else if (strangers != nullptr) {
      strangers->push_back(entry.name);
    }
  }
  return folders;
}

absl::StatusOr<StoreId> FindStoreId(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout);
  if (!folders.ok()) return folders.status();
  std::unique_ptr<ShardReader> first;
  for (const StepFolder& folder : *folders) {
    auto shard = OpenFirstShard(files, layout, folder);
    if (IsUnreadable(shard.status())) continue;
    if (!shard.ok()) return shard.status();
    if (first == nullptr) {
      first = *std::move(shard);
      continue;
    }
    const StoreId& expected = first->header().identity.store;
    const StoreId& found = (*shard)->header().identity.store;
    if (found != expected) {
      return absl::FailedPreconditionError(fmt::format("{} belongs to store {}, {} to store {}", first->path(),
                                                       ToHex(expected.bytes), (*shard)->path(), ToHex(found.bytes)));
    }
  }
  if (first != nullptr) return first->header().identity.store;
  return absl::NotFoundError(fmt::format("{}: no shard can be read", layout.steps()));
}

absl::Status SyncAttempt(FileSystem& files, const StoreLayout& layout, const StepRecord& record) {
  const StepInfo& info = record.info;
  const AttemptId attempt{*FromHex(info.attempt)};
  for (uint32_t rank = 0; rank < info.world_size; ++rank) {
    const auto shard = files.OpenForRead(layout.shard(info.step, attempt, rank, info.world_size), /*direct=*/false);
    if (!shard.ok()) return shard.status();
    if (absl::Status status = (*shard)->SyncData(); !status.ok()) return status;
  }
  absl::Status status = files.SyncDirectory(layout.attempt(info.step, attempt));
  return status.ok() ? files.SyncDirectory(layout.steps()) : status;
}

absl::Status SyncReferences(FileSystem& files, const StoreLayout& layout,
                            const std::vector<FileReference>& references) {
  for (const FileReference& file : references) {
    auto shard = files.OpenForRead(layout.shard(file.step, file.attempt, file.rank, file.world_size), /*direct=*/false);
    absl::Status status = shard.ok() ? (*shard)->SyncData() : shard.status();
    if (status.ok()) status = files.SyncDirectory(layout.attempt(file.step, file.attempt));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tidemark::storage
