#include "storage/store/repair/adoption.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/garbage.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

// Of one read and one write of a copy.
constexpr size_t kCopyBytes = 4 << 20;

// Whether no step has the attempt, and none had it: its save was cut short, or failed.
absl::StatusOr<bool> IsUncommitted(const StepCatalog& catalog, const StepFolder& folder) {
  const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(folder.step);
  if (!record.ok()) return record.status();
  if (IsAttemptOf(*record, folder.attempt)) return false;
  const absl::StatusOr<std::vector<DeletionRecord>> deletions = catalog.Deletions();
  if (!deletions.ok()) return deletions.status();
  return std::none_of(deletions->begin(), deletions->end(),
                      [&](const DeletionRecord& deletion) { return deletion.attempt == folder.attempt; });
}

// Newer attempts are greater. Those of the first format, whose ids are random, are older than all others; their
// sequences order them.
auto AgeOf(const Adoptable& found) {
  const bool has_epoch = EpochOf(found.folder.attempt) < kEpochMax;
  return std::tuple(has_epoch, has_epoch ? 0 : found.record.info.sequence, ToHex(found.folder.attempt.bytes));
}

absl::Status CheckCancelled(const AttemptVerifyOptions& options) {
  if (options.cancelled == nullptr || !options.cancelled()) return absl::OkStatus();
  return absl::CancelledError("the copy was cancelled");
}

absl::Status CopyRest(File& from, File& to, uint64_t begin, uint64_t end, const AttemptVerifyOptions& options) {
  std::vector<std::byte> buffer(std::min<uint64_t>(kCopyBytes, end - begin));
  for (uint64_t at = begin; at < end;) {
    const std::span<std::byte> piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), end - at));
    absl::Status status = CheckCancelled(options);
    if (status.ok()) status = from.ReadAt(at, piece);
    if (status.ok()) status = to.WriteAt(at, piece);
    if (!status.ok()) return status;
    at += piece.size();
    if (options.progress != nullptr) options.progress(piece.size());
  }
  return absl::OkStatus();
}

// Only the header says whose a shard is. It is written last, as that of every shard is: what has one is whole.
absl::Status CopyShard(FileSystem& files, const ShardReader& shard, const std::string& to, const ShardHeader& header,
                       const AttemptVerifyOptions& options) {
  const std::string& from = shard.path();
  const uint64_t bytes = shard.footer().file_bytes;
  auto source = files.OpenForRead(from, /*direct=*/false);
  if (!source.ok()) return source.status();
  auto copy = files.Create(to, /*direct=*/false);
  if (!copy.ok()) return copy.status();
  const std::string encoded = EncodeShardHeader(header);
  absl::Status status = (*copy)->Allocate(bytes);
  if (absl::IsUnimplemented(status)) status = absl::OkStatus();
  if (status.ok()) status = CopyRest(**source, **copy, encoded.size(), bytes, options);
  if (status.ok()) status = (*copy)->SyncData();
  if (status.ok()) status = (*copy)->WriteAt(0, std::as_bytes(std::span(encoded)));
  if (status.ok()) status = (*copy)->SyncData();
  const absl::Status closed = (*copy)->Close();
  return status.ok() ? closed : status;
}

// The attempt gets all shards of the one that was found. Holds one of them open at a time.
absl::Status FillAttempt(FileSystem& files, const StoreLayout& layout, const Adoptable& found,
                         const ShardIdentity& identity, AdoptionMode mode, const AttemptVerifyOptions& options) {
  const StepFolder& folder = found.folder;
  const uint32_t world_size = found.record.info.world_size;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    const std::string from = layout.shard(folder.step, folder.attempt, rank, world_size);
    const std::string to = layout.shard(folder.step, identity.attempt, rank, world_size);
    absl::Status status;
    if (mode == AdoptionMode::kLink) {
      status = files.HardLink(from, to);
    } else {
      const absl::StatusOr<std::unique_ptr<ShardReader>> shard = ShardReader::Open(files, from, layout.steps());
      if (!shard.ok()) return shard.status();
      ShardHeader header = (*shard)->header();
      header.identity.attempt = identity.attempt;
      header.identity.sequence = identity.sequence;
      status = CopyShard(files, **shard, to, header, options);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The record of the copy, whose every byte is sound and synced; CommitAttempt syncs its folders.
absl::StatusOr<StepRecord> MakeCopy(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                    const Adoptable& found, const ShardIdentity& identity, AdoptionMode mode,
                                    const AttemptVerifyOptions& options) {
  if (absl::Status filled = FillAttempt(files, layout, found, identity, mode, options); !filled.ok()) return filled;
  StepRecord record = found.record;
  record.info.attempt = ToHex(identity.attempt.bytes);
  record.info.sequence = identity.sequence;
  if (mode == AdoptionMode::kLink) return record;
  absl::Status status = CheckAttempt(files, layout, store, record, options);
  if (status.ok()) status = SyncReferences(files, layout, record.references);
  if (!status.ok()) return status;
  return record;
}

}  // namespace

absl::StatusOr<std::vector<Adoptable>> FindAdoptables(FileSystem& files, const StoreLayout& layout,
                                                      const StoreId& store, const StepCatalog& catalog, int64_t step) {
  const absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout);
  if (!folders.ok()) return folders.status();
  std::vector<Adoptable> adoptables;
  absl::Status refused =
      absl::NotFoundError(fmt::format("{} has no attempt at step {} that was not committed", layout.steps(), step));
  for (const StepFolder& folder : *folders) {
    if (folder.step != step) continue;
    const absl::StatusOr<bool> uncommitted = IsUncommitted(catalog, folder);
    if (!uncommitted.ok()) return uncommitted.status();
    if (!*uncommitted) continue;
    absl::StatusOr<StepRecord> record = ReadAttemptRecord(files, layout, store, folder);
    const absl::Status read = record.status();
    if (read.ok()) {
      adoptables.push_back({.folder = folder, .record = *std::move(record)});
    } else if (IsAboutAttempt(read)) {
      refused = absl::Status(absl::IsNotFound(read) ? absl::StatusCode::kDataLoss : read.code(), read.message());
    } else {
      return read;
    }
  }
  if (adoptables.empty()) return refused;
  std::sort(adoptables.begin(), adoptables.end(),
            [](const Adoptable& a, const Adoptable& b) { return AgeOf(a) > AgeOf(b); });
  return adoptables;
}

absl::Status VerifyAdoptable(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                             const StepCatalog& catalog, const Adoptable& found, const AttemptVerifyOptions& options) {
  for (const FileReference& file : found.record.references) {
    const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(file.step);
    if (!record.ok()) return record.status();
    const absl::StatusOr<bool> referenced = catalog.IsReferenced(file.attempt);
    if (!referenced.ok()) return referenced.status();
    if (IsAttemptOf(*record, file.attempt) || *referenced) continue;
    return absl::DataLossError(fmt::format("{} has some of its chunks in {}, which no committed step needs",
                                           layout.attempt(found.folder.step, found.folder.attempt),
                                           StepFolderName(file.step, file.attempt)));
  }
  return CheckAttempt(files, layout, store, found.record, options);
}

absl::Status CommitCopyOf(FileSystem& files, Store& store, const Adoptable& found, AdoptionMode mode,
                          const AttemptVerifyOptions& options) {
  const absl::StatusOr<ShardIdentity> identity = store.BeginAttempt(found.folder.step);
  if (!identity.ok()) return identity.status();
  const absl::StatusOr<StepRecord> copy = MakeCopy(files, store.layout(), store.id(), found, *identity, mode, options);
  if (copy.ok()) return store.CommitAttempt(*copy);
  // What stays is swept by the next holder.
  RemoveTree(files, store.layout().attempt(identity->step, identity->attempt)).IgnoreError();
  return copy.status();
}

}  // namespace tidemark::storage
