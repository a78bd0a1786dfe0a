#include "storage/manifest/store.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/identity_recovery.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/rebuild.h"
#include "storage/manifest/reconciliation.h"
#include "storage/manifest/retired_shard.h"
#include "storage/manifest/store_identity.h"

namespace tidemark::storage {
namespace {

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Makes the directory and whichever of its parents are missing, each synced into its own parent. So is the first that
// is there: a crash may have come between its making and its sync.
absl::Status CreateDirectories(FileSystem& files, const std::string& path) {
  absl::StatusOr<FileType> type = files.TypeOf(path);
  const std::string parent = ParentOf(path);
  if (type.ok()) {
    if (*type != FileType::kDirectory) return absl::FailedPreconditionError(fmt::format("{} is not a directory", path));
    absl::Status status = files.SyncDirectory(parent);
    // Who may not look into the parent was given the directory by somebody else.
    return absl::IsPermissionDenied(status) ? absl::OkStatus() : status;
  }
  if (!absl::IsNotFound(type.status())) return type.status();
  if (absl::Status status = CreateDirectories(files, parent); !status.ok()) return status;
  if (absl::Status status = files.CreateDirectory(path); !status.ok() && !absl::IsAlreadyExists(status)) return status;
  return files.SyncDirectory(parent);
}

// RocksDB would make the directory only to say that it holds nothing.
absl::StatusOr<std::unique_ptr<Manifest>> OpenManifestIfThere(FileSystem& files, const StoreLayout& layout) {
  if (absl::StatusOr<FileType> type = files.TypeOf(layout.manifest()); !type.ok()) return type.status();
  return Manifest::Open(layout.manifest());
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

Store::Store(FileSystem& files, StoreOptions options)
    : files_(files), options_(std::move(options)), layout_(options_.directory) {}

Store::~Store() {
  if (lock_ != nullptr) DropRetiredShard(files_, layout_);
  RecordSettled();
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(FileSystem& files, StoreOptions options) {
  if (options.directory.empty()) return absl::InvalidArgumentError("the directory of the store is empty");
  std::unique_ptr<Store> store(new Store(files, std::move(options)));
  if (absl::Status status = store->Initialize(); !status.ok()) return status;
  return store;
}

absl::Status Store::Initialize() {
  if (absl::Status status = CreateDirectories(files_, layout_.directory()); !status.ok()) return status;
  // A directory that is not ours gets neither LOCK nor steps/.
  absl::StatusOr<FoundIdentity> identity = FindIdentity(files_, layout_);
  if (!identity.ok()) return identity.status();
  absl::StatusOr<std::unique_ptr<FileLock>> lock = files_.TryLock(layout_.lock());
  if (!lock.ok()) {
    if (!absl::IsUnavailable(lock.status())) return lock.status();
    return absl::UnavailableError(
        fmt::format("store {} is open for writing elsewhere: {}", layout_.directory(), Text(lock.status())));
  }
  lock_ = *std::move(lock);
  if (absl::Status status = lock_->WriteNote(DescribeThisProcess()); !status.ok()) return status;
  // Another process may have made the store since the first look.
  identity = FindIdentity(files_, layout_);
  if (!identity.ok()) return identity.status();
  absl::Status status = files_.CreateDirectory(layout_.steps());
  if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  // Also where it was there: a crash may have come between its making and this.
  if (status = files_.SyncDirectory(layout_.directory()); !status.ok()) return status;
  id_ = identity->id.value_or(StoreId{RandomBytes16()});
  if (!identity->written.ok()) {
    if (identity->id) {
      options_.warn(fmt::format("store.json was written anew from what the store holds: {}", Text(identity->written)));
    }
    if (status = WriteIdentity(); !status.ok()) return status;
  }
  status = OpenManifest();
  if (status.ok()) status = Reconcile();
  if (manifest_ != nullptr && absl::IsDataLoss(status)) {
    options_.warn(fmt::format("the manifest cannot be read and is rebuilt: {}", Text(status)));
    manifest_.reset();
    if (status = RebuildManifest(files_, layout_, id_, options_.read, options_.warn); !status.ok()) return status;
    if (status = OpenManifest(); status.ok()) status = Reconcile();
  }
  return status;
}

absl::Status Store::WriteIdentity() { return WriteFileDurably(files_, layout_.identity(), EncodeStoreIdentity(id_)); }

absl::Status Store::OpenManifest() {
  absl::StatusOr<std::unique_ptr<Manifest>> manifest = OpenManifestIfThere(files_, layout_);
  if (manifest.ok() && (*manifest)->store_id() != id_) {
    if (absl::Status status = SettleIdentity((*manifest)->store_id()); !status.ok()) manifest = status;
  }
  if (!manifest.ok() && IsMissingOrDamaged(manifest.status())) {
    std::vector<std::string> strangers;
    absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files_, layout_, &strangers);
    if (!folders.ok()) return folders.status();
    absl::Status status;
    if (folders->empty()) {
      status = StartEmptyManifest(manifest.status());
    } else {
      options_.warn(fmt::format("the manifest cannot be read and is rebuilt: {}", Text(manifest.status())));
      status = RebuildManifest(files_, layout_, id_, options_.read, options_.warn);
    }
    if (!status.ok()) return status;
    manifest = Manifest::Open(layout_.manifest());
  }
  if (!manifest.ok()) return manifest.status();
  manifest_ = *std::move(manifest);
  next_sequence_ = manifest_->last_sequence() + 1;
  return absl::OkStatus();
}

// store.json and the manifest name different stores: the shards say which of the two is in the wrong place. Ok: it was
// store.json, which now agrees. kDataLoss: it is the manifest. kFailedPrecondition: nobody can say.
absl::Status Store::SettleIdentity(const StoreId& of_manifest) {
  const std::string conflict = fmt::format("manifest {} is that of store {}, this one is {}", layout_.manifest(),
                                           ToHex(of_manifest.bytes), ToHex(id_.bytes));
  absl::StatusOr<StoreId> of_shards = FindStoreId(files_, layout_);
  if (absl::IsNotFound(of_shards.status())) {
    std::vector<std::string> strangers;
    absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files_, layout_, &strangers);
    if (!folders.ok()) return folders.status();
    if (folders->empty()) return absl::DataLossError(conflict);
    return absl::FailedPreconditionError(fmt::format("{}, and no shard can be read that tells", conflict));
  }
  if (!of_shards.ok()) return of_shards.status();
  if (*of_shards == id_) return absl::DataLossError(conflict);
  if (*of_shards != of_manifest) {
    return absl::FailedPreconditionError(
        fmt::format("{}, and the shards are of store {}", conflict, ToHex(of_shards->bytes)));
  }
  options_.warn(fmt::format("store.json was written anew, for the shards agree with the manifest: {}", conflict));
  id_ = of_manifest;
  return WriteIdentity();
}

// Of a new store, of one whose creation was cut short, or of one whose steps are gone and whose records cannot be read.
absl::Status Store::StartEmptyManifest(const absl::Status& why) {
  const std::string aside = layout_.manifest() + ".broken-" + ToHex(RandomBytes16());
  absl::Status status = files_.Rename(layout_.manifest(), aside);
  if (status.ok()) {
    options_.warn(
        fmt::format("the manifest cannot be read and there are no steps: it is kept as {}, and an empty one "
                    "takes its place: {}",
                    aside, Text(why)));
  } else if (!absl::IsNotFound(status)) {
    return status;
  }
  if (absl::StatusOr<std::unique_ptr<Manifest>> fresh = Manifest::Create(layout_.manifest(), id_); !fresh.ok()) {
    return fresh.status();
  }
  return files_.SyncDirectory(layout_.directory());
}

absl::Status Store::Reconcile() {
  absl::StatusOr<bool> settled = WasLeftSettled();
  if (!settled.ok()) return settled.status();
  if (*settled) {
    // The record that is asked for first, for what it costs: one seek. (Opening the manifest has read the store's.)
    // Damage in others is found when they are read, and the next Open sees to it.
    constexpr int64_t kStepMax = std::numeric_limits<int64_t>::max();
    if (auto newest = manifest_->FindAtOrBelow(kStepMax); !newest.ok()) return newest.status();
  } else {
    // Records are read by what follows; the indices are not.
    if (absl::Status status = manifest_->VerifyTables(); !status.ok()) return status;
    absl::StatusOr<size_t> repaired = manifest_->RepairIndices();
    if (!repaired.ok()) return repaired.status();
    if (*repaired > 0) {
      options_.warn(
          fmt::format("the manifest's indices did not agree with its records: {} keys were put right", *repaired));
    }
    Reconciliation reconciliation(files_, layout_, id_, *manifest_, options_.read, options_.warn);
    if (absl::Status status = reconciliation.Run(); !status.ok()) return status;
    next_sequence_ = manifest_->last_sequence() + 1;
    settled = reconciliation.settled();
  }
  if (absl::StatusOr<bool> more = RemoveDeleted(/*in_use=*/{}); !more.ok()) return more.status();
  // Rebuilds that a crash cut short.
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(layout_.directory());
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.starts_with("manifest.rebuilt-")) continue;
    if (absl::Status status = RemoveTree(files_, layout_.directory() + "/" + entry.name); !status.ok()) {
      options_.warn(fmt::format("what is left of a rebuild that was cut short stays: {}", Text(status)));
    }
  }
  absl::MutexLock lock(&records_mutex_);
  left_unsettled_ = !*settled;
  return absl::OkStatus();
}

absl::StatusOr<bool> Store::RemoveDeleted(const std::set<AttemptId>& in_use, size_t removals_max) {
  absl::MutexLock deleting(&deletions_mutex_);
  absl::StatusOr<bool> pending = manifest_->HasDeletions();
  if (!pending.ok() || !*pending) return pending;
  {
    absl::MutexLock lock(&records_mutex_);
    if (absl::Status status = RemoveSettledMark(); !status.ok()) return status;
  }
  return FinishDeletions(files_, layout_, *manifest_, in_use, removals_max, options_.warn);
}

// Whether the store was closed in good order and nobody has been at steps/ since. A mark that does not hold is removed.
absl::StatusOr<bool> Store::WasLeftSettled() {
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<std::optional<DirectoryStamp>> mark = manifest_->SettledMark();
  settled_mark_ = true;
  if (mark.ok() && !mark->has_value()) {
    settled_mark_ = false;
    return false;
  }
  // A mark that cannot be read says nothing.
  if (!mark.ok() && !absl::IsDataLoss(mark.status()) && !absl::IsUnimplemented(mark.status())) return mark.status();
  if (mark.ok()) {
    absl::StatusOr<DirectoryStamp> stamp = files_.StampDirectory(layout_.steps());
    if (stamp.ok() && *stamp == **mark) return true;
    if (!stamp.ok() && !absl::IsUnavailable(stamp.status())) return stamp.status();
  }
  if (absl::Status status = RemoveSettledMark(); !status.ok()) return status;
  return false;
}

// Sees to it that the mark does not hold, even where RocksDB, which compacts as it likes and stops at what is damaged,
// takes no more writes.
absl::Status Store::VoidSettledMark() {
  if (RemoveSettledMark().ok()) return absl::OkStatus();
  // A name that comes and goes changes the stamp of steps/.
  const std::string name = layout_.steps() + "/" + ToHex(RandomBytes16());
  absl::Status status = files_.CreateDirectory(name);
  if (status.ok()) status = files_.RemoveDirectory(name);
  return status.ok() ? files_.SyncDirectory(layout_.steps()) : status;
}

absl::Status Store::RemoveSettledMark() {
  if (!settled_mark_) return absl::OkStatus();
  absl::Status status = manifest_->RemoveSettledMark();
  settled_mark_ = !status.ok();
  return status;
}

void Store::RecordSettled() {
  absl::MutexLock lock(&records_mutex_);
  if (manifest_ == nullptr) return;
  if (manifest_->damage_found()) {
    if (absl::Status status = VoidSettledMark(); !status.ok()) {
      options_.warn(fmt::format("the next start may not repair the manifest, which is damaged: {}", Text(status)));
    }
    return;
  }
  if (settled_mark_ || left_unsettled_ || !open_attempts_.empty()) return;
  // What was removed may otherwise be back after power loss, and the stamp with it.
  absl::Status status = files_.SyncDirectory(layout_.steps());
  if (status.ok()) {
    absl::StatusOr<DirectoryStamp> stamp = files_.StampDirectory(layout_.steps());
    status = stamp.ok() ? manifest_->SetSettledMark(*stamp) : stamp.status();
  }
  if (!status.ok()) {
    options_.warn(
        fmt::format("the next start looks at every step, for it could not be recorded that the store was "
                    "closed in good order: {}",
                    Text(status)));
  }
}

absl::StatusOr<ShardIdentity> Store::BeginAttempt(int64_t step) {
  ShardIdentity identity;
  identity.store = id_;
  identity.step = step;
  identity.attempt = AttemptId{RandomBytes16()};
  identity.sequence = next_sequence_.fetch_add(1);
  absl::MutexLock lock(&records_mutex_);
  if (absl::Status status = RemoveSettledMark(); !status.ok()) return status;
  if (absl::Status status = files_.CreateDirectory(layout_.attempt(step, identity.attempt)); !status.ok())
    return status;
  open_attempts_.insert(identity.attempt);
  return identity;
}

bool Store::Recycle(const ShardIdentity& identity) {
  const bool recycled =
      RecycleShard(files_, layout_, layout_.shard(identity.step, identity.attempt, identity.rank, identity.world_size));
  if (recycled) recycled_ = true;
  return recycled;
}

absl::Status Store::CommitAttempt(const StepRecord& record) {
  const auto id = FromHex(record.info.attempt);
  if (!id)
    return absl::InternalError(
        fmt::format("commit of step {}: attempt '{}' is no id", record.info.step, record.info.attempt));
  absl::Status status = files_.SyncDirectory(layout_.attempt(record.info.step, AttemptId{*id}));
  if (status.ok()) status = files_.SyncDirectory(layout_.steps());
  // A shard that was recycled came from there: until both directories are synced power loss may take it back.
  if (status.ok() && recycled_.exchange(false)) {
    status = files_.SyncDirectory(layout_.directory());
    if (!status.ok()) recycled_ = true;
  }
  if (!status.ok()) return status;
  absl::StatusOr<std::optional<DeletionRecord>> replaced = std::nullopt;
  {
    absl::MutexLock lock(&records_mutex_);
    replaced = CommitLocked(record);
    if (replaced.ok()) open_attempts_.erase(AttemptId{*id});
  }
  if (!replaced.ok()) return replaced.status();
  if (!replaced->has_value()) return absl::OkStatus();
  if (absl::StatusOr<bool> more = RemoveDeleted(/*in_use=*/{}, kRemovalsPerCommitMax); !more.ok()) {
    options_.warn(fmt::format("step {} was replaced, but its old files are still there: {}", record.info.step,
                              Text(more.status())));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<DeletionRecord>> Store::CommitLocked(StepRecord record) {
  absl::StatusOr<std::optional<StepRecord>> old = manifest_->Find(record.info.step);
  if (!old.ok()) return old.status();
  if (old->has_value()) {
    if (absl::Status pinned = InheritPin(files_, layout_, (*old)->info, record.info); !pinned.ok()) {
      options_.warn(fmt::format("step {} stays pinned, but a rebuild of the manifest would not know: {}",
                                record.info.step, Text(pinned)));
    }
  }
  return manifest_->Commit(record);
}

void Store::AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why) {
  absl::Status removed = RemoveTree(files_, layout_.attempt(identity.step, identity.attempt));
  if (!removed.ok()) {
    options_.warn(fmt::format("what is left of step {}'s failed save is removed at the next start: {}", identity.step,
                              Text(removed)));
  }
  absl::MutexLock lock(&records_mutex_);
  if (removed.ok()) open_attempts_.erase(identity.attempt);
  absl::StatusOr<std::optional<StepRecord>> record = manifest_->Find(identity.step);
  // What is known of a step that was evaluated or deleted is worth more than why a save at it failed.
  if (!record.ok() || (record->has_value() && (*record)->info.state != StepState::kFailed)) return;
  StepRecord failed;
  failed.info.step = identity.step;
  failed.info.state = StepState::kFailed;
  failed.info.sequence = identity.sequence;
  failed.info.created = created;
  failed.info.reason = why.ToString();
  if (absl::Status status = manifest_->Update(failed); !status.ok()) {
    options_.warn(fmt::format("the failure of step {} could not be recorded: {}", identity.step, Text(status)));
  }
}

}  // namespace tidemark::storage
