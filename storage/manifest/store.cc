#include "storage/manifest/store.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/identity_recovery.h"
#include "storage/manifest/quarantine.h"
#include "storage/manifest/rebuild.h"
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

Store::~Store() = default;

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
  absl::Status status = FinishDeletions();
  if (status.ok()) status = ReconcileRecords();
  if (status.ok()) status = ReconcileFolders();
  if (!status.ok()) return status;
  // Rebuilds that a crash cut short.
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(layout_.directory());
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.starts_with("manifest.rebuilt-")) continue;
    if (status = RemoveTree(files_, layout_.directory() + "/" + entry.name); !status.ok()) {
      options_.warn(fmt::format("what is left of a rebuild that was cut short stays: {}", Text(status)));
    }
  }
  return absl::OkStatus();
}

absl::Status Store::FinishDeletions() {
  absl::StatusOr<std::vector<DeletionRecord>> deletions = manifest_->Deletions();
  if (!deletions.ok()) return deletions.status();
  for (const DeletionRecord& deletion : *deletions) {
    if (absl::Status status = RemoveAttemptOrWarn(deletion); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Files that cannot be removed stand in nobody's way: the mark stays, and the next Open tries again. Returns only what
// the manifest has to be rebuilt for.
absl::Status Store::RemoveAttemptOrWarn(const DeletionRecord& deletion) {
  absl::Status status = RemoveAttempt(deletion);
  if (status.ok() || absl::IsDataLoss(status)) return status;
  options_.warn(
      fmt::format("step {} was replaced, but its old files are still there: {}", deletion.step, Text(status)));
  return absl::OkStatus();
}

// Records whose folder is gone become kLost, and those whose folder has come back are committed again.
absl::Status Store::ReconcileRecords() {
  std::vector<std::string> strangers;
  absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files_, layout_, &strangers);
  if (!folders.ok()) return folders.status();
  for (const std::string& name : strangers) {
    options_.warn(fmt::format("left alone: {}/{} is not an attempt", layout_.steps(), name));
  }
  std::set<AttemptId> present;
  for (const StepFolder& folder : *folders) present.insert(folder.attempt);
  std::vector<StepRecord> changed;
  absl::Status status = manifest_->ForEach([&](StepRecord record) {
    const auto id = FromHex(record.info.attempt);
    const bool is_present = id && present.contains(AttemptId{*id});
    if (record.info.state == StepState::kCommitted && !is_present) {
      record.info.state = StepState::kLost;
      record.info.reason = "its folder is gone";
      options_.warn(fmt::format("step {} is lost: it was committed, but {}/{} is gone", record.info.step,
                                layout_.steps(),
                                StepFolderName(record.info.step, AttemptId{id.value_or(AttemptId().bytes)})));
      changed.push_back(std::move(record));
    } else if (record.info.state == StepState::kLost && is_present) {
      const StepFolder folder{record.info.step, AttemptId{*id}};
      absl::StatusOr<Attempt> attempt = ReadAttempt(files_, layout_, id_, folder);
      if (attempt.ok()) {
        record.info.state = StepState::kCommitted;
        record.info.reason.clear();
        changed.push_back(std::move(record));
      }
    }
    return true;
  });
  for (size_t i = 0; status.ok() && i < changed.size(); ++i) status = manifest_->Update(changed[i]);
  return status;
}

absl::Status Store::ReconcileFolders() {
  std::vector<std::string> strangers;
  absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files_, layout_, &strangers);
  if (!folders.ok()) return folders.status();
  absl::StatusOr<std::vector<DeletionRecord>> deletions = manifest_->Deletions();
  if (!deletions.ok()) return deletions.status();
  std::set<AttemptId> kept_for_others;
  for (const DeletionRecord& deletion : *deletions) kept_for_others.insert(deletion.attempt);
  for (const StepFolder& folder : *folders) {
    if (kept_for_others.contains(folder.attempt)) continue;
    if (absl::Status status = ReconcileFolder(folder); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Store::ReconcileFolder(const StepFolder& folder) {
  absl::StatusOr<std::optional<StepRecord>> record = manifest_->Find(folder.step);
  if (!record.ok()) return record.status();
  if (record->has_value() && (*record)->info.attempt == ToHex(folder.attempt.bytes)) return absl::OkStatus();

  absl::StatusOr<Attempt> attempt = ReadAttempt(files_, layout_, id_, folder);
  if (!attempt.ok()) {
    // The store's format and the manifest's are not too new, so a newer shard is more likely a flipped bit.
    if (absl::IsFailedPrecondition(attempt.status()) || absl::IsUnimplemented(attempt.status())) {
      options_.warn(fmt::format("left alone: {}", Text(attempt.status())));
      return absl::OkStatus();
    }
    if (!IsMissingOrDamaged(attempt.status())) return attempt.status();  // nothing is known about the attempt
    return DiscardFolder(folder, attempt.status(), /*keep=*/false);
  }
  // Of two attempts at a step the later one wins, here as in a rebuild. It was never acknowledged, so either would do;
  // but should the record of a later one have rotted away, taking the earlier one would undo an acknowledged save.
  if (record->has_value() && (*record)->info.state == StepState::kCommitted &&
      (*record)->info.sequence > attempt->record.info.sequence) {
    return DiscardFolder(folder, absl::AlreadyExistsError("a later attempt at the step is committed"), /*keep=*/false);
  }
  if (absl::Status sound = VerifyAndSync(files_, layout_, folder, *attempt, options_.read); !sound.ok()) {
    if (!IsMissingOrDamaged(sound)) return sound;
    return DiscardFolder(folder, sound, /*keep=*/true);
  }
  absl::StatusOr<std::optional<DeletionRecord>> replaced = manifest_->Commit(attempt->record);
  if (!replaced.ok()) return replaced.status();
  next_sequence_ = std::max<uint64_t>(next_sequence_, attempt->record.info.sequence + 1);
  return replaced->has_value() ? RemoveAttemptOrWarn(**replaced) : absl::OkStatus();
}

// Takes a folder that has no record out of steps/. `keep`: to quarantine, for its index tells what is in it.
absl::Status Store::DiscardFolder(const StepFolder& folder, const absl::Status& why, bool keep) {
  absl::StatusOr<bool> referenced = IsReferenced(folder.attempt);
  if (!referenced.ok()) return referenced.status();
  const std::string name = StepFolderName(folder.step, folder.attempt);
  if (*referenced) {
    options_.warn(fmt::format("left alone: {} has no record, but a step refers to it: {}", name, Text(why)));
    return absl::OkStatus();
  }
  options_.warn(
      fmt::format("{} was never committed and is {}: {}", name, keep ? "moved to quarantine" : "removed", Text(why)));
  if (keep) return MoveToQuarantine(files_, layout_, folder);
  absl::Status status = RemoveTree(files_, layout_.attempt(folder.step, folder.attempt));
  return status.ok() ? files_.SyncDirectory(layout_.steps()) : status;
}

absl::StatusOr<bool> Store::IsReferenced(const AttemptId& attempt) const {
  bool referenced = false;
  absl::Status status = manifest_->ForEach([&](const StepRecord& record) {
    referenced = std::any_of(record.references.begin(), record.references.end(),
                             [&](const FileReference& file) { return file.attempt == attempt; });
    return !referenced;
  });
  if (!status.ok()) return status;
  return referenced;
}

absl::Status Store::RemoveAttempt(const DeletionRecord& deletion) {
  // Chunks of a later step may lie in it: it stays, marked, until nobody lists it.
  absl::StatusOr<bool> referenced = IsReferenced(deletion.attempt);
  if (!referenced.ok()) return referenced.status();
  if (*referenced) return absl::OkStatus();
  absl::Status status = RemoveTree(files_, layout_.attempt(deletion.step, deletion.attempt));
  if (status.ok()) status = files_.SyncDirectory(layout_.steps());
  if (status.ok()) status = manifest_->FinishDeletion(deletion.attempt);
  return status;
}

absl::StatusOr<ShardIdentity> Store::BeginAttempt(int64_t step) {
  ShardIdentity identity;
  identity.store = id_;
  identity.step = step;
  identity.attempt = AttemptId{RandomBytes16()};
  identity.sequence = next_sequence_.fetch_add(1);
  if (absl::Status status = files_.CreateDirectory(layout_.attempt(step, identity.attempt)); !status.ok())
    return status;
  return identity;
}

absl::Status Store::CommitAttempt(const StepRecord& record) {
  const auto id = FromHex(record.info.attempt);
  if (!id)
    return absl::InternalError(
        fmt::format("commit of step {}: attempt '{}' is no id", record.info.step, record.info.attempt));
  absl::Status status = files_.SyncDirectory(layout_.attempt(record.info.step, AttemptId{*id}));
  if (status.ok()) status = files_.SyncDirectory(layout_.steps());
  if (!status.ok()) return status;
  absl::StatusOr<std::optional<DeletionRecord>> replaced = std::nullopt;
  {
    absl::MutexLock lock(&records_mutex_);
    replaced = manifest_->Commit(record);
  }
  if (!replaced.ok()) return replaced.status();
  if (replaced->has_value()) {
    if (status = RemoveAttempt(**replaced); !status.ok()) {
      options_.warn(
          fmt::format("step {} was replaced, but its old files are still there: {}", record.info.step, Text(status)));
    }
  }
  return absl::OkStatus();
}

void Store::AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why) {
  absl::Status removed = RemoveTree(files_, layout_.attempt(identity.step, identity.attempt));
  if (!removed.ok()) {
    options_.warn(fmt::format("what is left of step {}'s failed save is removed at the next start: {}", identity.step,
                              Text(removed)));
  }
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<std::optional<StepRecord>> record = manifest_->Find(identity.step);
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

absl::Status Store::MarkStep(int64_t step, const std::string& attempt, StepState state, std::string_view reason) {
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<std::optional<StepRecord>> record = manifest_->Find(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.attempt != attempt) {
    return absl::NotFoundError(fmt::format("step {} has no record of attempt {}", step, attempt));
  }
  (*record)->info.state = state;
  (*record)->info.reason = reason;
  return manifest_->Update(**record);
}

}  // namespace tidemark::storage
