#include "storage/manifest/store.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/io/exception_status.h"
#include "storage/io/lock_note.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/disk_reserve.h"
#include "storage/manifest/forgotten_deletions.h"
#include "storage/manifest/identity_recovery.h"
#include "storage/manifest/rebuild.h"
#include "storage/manifest/reconciliation.h"
#include "storage/manifest/retired_shard.h"
#include "storage/manifest/store_identity.h"
#include "storage/manifest/warn_later.h"
#include "storage/shard/checked_encoding.h"

namespace tidemark::storage {
namespace {

// RocksDB would make the directory only to say that it holds nothing.
absl::StatusOr<std::unique_ptr<Manifest>> OpenManifestIfThere(FileSystem& files, const StoreLayout& layout) {
  if (absl::StatusOr<FileType> type = files.TypeOf(layout.manifest()); !type.ok()) return type.status();
  return Manifest::Open(files, layout.manifest());
}

}  // namespace

Store::Store(FileSystem& files, StoreOptions options)
    : files_(files),
      options_(std::move(options)),
      layout_(options_.directory),
      names_(files, "the store " + layout_.directory()) {}

Store::~Store() {
  // Without memory for it, the next Open looks at every step.
  BestEffort([this] {
    if (lock_ == nullptr || !names_.Check().ok()) return;
    DropRetiredShard(files_, layout_);
    RecordSettled();
  });
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(FileSystem& files, StoreOptions options) {
  if (options.directory.empty()) return absl::InvalidArgumentError("the directory of the store is empty");
  std::unique_ptr<Store> store(new Store(files, std::move(options)));
  if (absl::Status status = store->Initialize(); !status.ok()) return status;
  return store;
}

absl::Status Store::Initialize() {
  if (!options_.create) {
    const absl::StatusOr<FoundIdentity> there = FindIdentity(files_, layout_);
    if (!there.ok()) return there.status();
    if (!there->id) return absl::NotFoundError(fmt::format("there is no store in {}", layout_.directory()));
  }
  if (absl::Status status = CreateDirectories(files_, layout_.directory()); !status.ok()) return status;
  // A directory that is not ours gets neither LOCK nor steps/.
  absl::StatusOr<FoundIdentity> identity = FindIdentity(files_, layout_);
  if (!identity.ok()) return identity.status();
  absl::StatusOr<std::unique_ptr<FileLock>> lock = TakeLock();
  if (!lock.ok()) {
    if (!absl::IsUnavailable(lock.status())) return lock.status();
    return absl::UnavailableError(fmt::format("store {} is open for writing elsewhere: {}", layout_.directory(),
                                              std::string(lock.status().message())));
  }
  lock_ = *std::move(lock);
  absl::Status status = names_.Add(layout_.directory());
  if (status.ok()) status = names_.Add(layout_.lock());
  if (status.ok()) status = SetUp();
  if (absl::IsResourceExhausted(status) && GiveUpRoom(files_, layout_)) status = SetUp();
  if (status.ok()) status = names_.Add(layout_.steps());
  if (status.ok()) status = names_.Add(layout_.manifest());
  if (!status.ok()) return status;
  absl::MutexLock records(&records_mutex_);
  lacks_reserve_ = !SetRoomAside(files_, layout_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileLock>> Store::TakeLock() const {
  for (int tries = 1;; ++tries) {
    absl::StatusOr<std::unique_ptr<FileLock>> lock = files_.TryLock(layout_.lock());
    if (!absl::IsUnavailable(lock.status())) return lock;
    if (!options_.awaits_inspect || tries == kInspectTriesMax) return lock;
    const absl::StatusOr<std::string> note = files_.ReadNote(layout_.lock(), kNoteBytesMax);
    if (!note.ok() || !MayBeInspect(*note)) return lock;
    absl::SleepFor(kBetweenInspectTries);
  }
}

// What Open does once it has the lock. May be called again after a failure.
absl::Status Store::SetUp() {
  absl::Status status = lock_->WriteNote(DescribeThisProcess());
  if (!status.ok()) return status;
  // Another process may have made the store since the first look.
  absl::StatusOr<FoundIdentity> identity = FindIdentity(files_, layout_);
  if (!identity.ok()) return identity.status();
  status = files_.CreateDirectory(layout_.steps());
  if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  // Also where it was there: a crash may have come between its making and this.
  if (status = files_.SyncDirectory(layout_.directory()); !status.ok()) return status;
  id_ = identity->id.value_or(StoreId{RandomBytes16()});
  if (!identity->written.ok()) {
    if (identity->id) {
      options_.warn(fmt::format("store.json was rewritten from the manifest or the shards: {}",
                                std::string(identity->written.message())));
    }
    if (status = WriteIdentity(identity->written); !status.ok()) return status;
  }
  return OpenOrRebuild();
}

// A manifest that turns out to be damaged only once it is open is rebuilt too, and opened again.
absl::Status Store::OpenOrRebuild() {
  absl::Status status = OpenAndReconcile();
  if (manifest_ == nullptr || !absl::IsDataLoss(status)) return status;
  manifest_.reset();
  status = Rebuild(status);
  return status.ok() ? OpenAndReconcile() : status;
}

absl::Status Store::OpenAndReconcile() {
  manifest_.reset();
  const absl::Status status = OpenManifest();
  return status.ok() ? Reconcile() : status;
}

void Store::Tell(const StoreChange& change) const {
  if (options_.on_change != nullptr) options_.on_change(change);
}

absl::Status Store::WriteIdentity(const absl::Status& why) {
  const auto encoded = EncodeAndCheck("store.json", id_, EncodeStoreIdentity, DecodeStoreIdentity);
  if (!encoded.ok()) return encoded.status();
  absl::Status status = WriteFileDurably(files_, layout_.identity(), encoded->bytes);
  if (!status.ok()) return status;
  Tell({.kind = StoreChange::Kind::kIdentityWritten, .path = layout_.identity(), .why = std::string(why.message())});
  return absl::OkStatus();
}

absl::Status Store::Rebuild(const absl::Status& why) {
  options_.warn(fmt::format("the manifest cannot be read and is rebuilt: {}", std::string(why.message())));
  absl::Status status = RebuildManifest(files_, layout_, id_, options_.read, options_.warn, options_.on_change);
  if (!status.ok()) return status;
  Tell({.kind = StoreChange::Kind::kManifestRebuilt, .path = layout_.manifest(), .why = std::string(why.message())});
  return absl::OkStatus();
}

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
      status = Rebuild(manifest.status());
    }
    if (!status.ok()) return status;
    manifest = Manifest::Open(files_, layout_.manifest());
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
    return absl::FailedPreconditionError(fmt::format("{}, and no shard can be read to decide", conflict));
  }
  if (!of_shards.ok()) return of_shards.status();
  if (*of_shards == id_) return absl::DataLossError(conflict);
  if (*of_shards != of_manifest) {
    return absl::FailedPreconditionError(
        fmt::format("{}, and the shards are of store {}", conflict, ToHex(of_shards->bytes)));
  }
  options_.warn(fmt::format("store.json was rewritten, because the shards agree with the manifest: {}", conflict));
  id_ = of_manifest;
  return WriteIdentity(absl::DataLossError(conflict));
}

// Of a new store, of one whose creation was cut short, or of one whose steps are gone and whose records cannot be read.
absl::Status Store::StartEmptyManifest(const absl::Status& why) {
  const std::string aside = layout_.manifest() + ".broken-" + ToHex(RandomBytes16());
  absl::Status status = files_.Rename(layout_.manifest(), aside);
  if (status.ok()) {
    options_.warn(fmt::format(
        "the manifest cannot be read and there are no steps: it was moved to {}, and replaced by an empty one: {}",
        aside, std::string(why.message())));
  } else if (!absl::IsNotFound(status)) {
    return status;
  }
  if (absl::StatusOr<std::unique_ptr<Manifest>> fresh = Manifest::Create(files_, layout_.manifest(), id_);
      !fresh.ok()) {
    return fresh.status();
  }
  if (absl::Status synced = files_.SyncDirectory(layout_.directory()); !synced.ok()) return synced;
  Tell({.kind = StoreChange::Kind::kManifestRebuilt, .path = layout_.manifest(), .why = std::string(why.message())});
  return absl::OkStatus();
}

absl::Status Store::Reconcile() {
  absl::StatusOr<bool> settled = WasLeftSettled();
  if (!settled.ok()) return settled.status();
  settled = *settled && !options_.look_at_everything;
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
      options_.warn(fmt::format("the manifest's indices did not match its records: {} keys were corrected", *repaired));
      Tell({.kind = StoreChange::Kind::kIndicesCorrected,
            .path = layout_.manifest(),
            .why = fmt::format("{} keys did not match the records", *repaired)});
    }
    Reconciliation reconciliation(files_, layout_, id_, *manifest_, options_.read, options_.warn, options_.note,
                                  options_.on_change);
    if (absl::Status status = reconciliation.Run(); !status.ok()) return status;
    settled = SettleForgotten(files_, *this, reconciliation.forgotten(), options_);
    if (!settled.ok()) return settled.status();
    settled = *settled && reconciliation.settled();
    next_sequence_ = manifest_->last_sequence() + 1;
  }
  if (absl::Status status = RemoveDeletedAndTell(); !status.ok()) return status;
  // Rebuilds that a crash cut short.
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(layout_.directory());
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.starts_with("manifest.rebuilt-")) continue;
    const std::string path = layout_.directory() + "/" + entry.name;
    if (absl::Status status = RemoveTree(files_, path); !status.ok()) {
      options_.warn(fmt::format("the leftovers of an interrupted rebuild stay: {}", std::string(status.message())));
    } else {
      Tell({.kind = StoreChange::Kind::kRemoved, .path = path, .why = "a rebuild of the manifest was interrupted"});
    }
  }
  absl::MutexLock lock(&records_mutex_);
  left_unsettled_ = !*settled;
  return absl::OkStatus();
}

absl::Status Store::RemoveDeletedAndTell() {
  if (options_.on_change == nullptr) return RemoveDeleted(/*in_use=*/{}).status();
  absl::StatusOr<std::vector<DeletionRecord>> before = manifest_->Deletions();
  if (!before.ok()) return before.status();
  if (absl::StatusOr<bool> more = RemoveDeleted(/*in_use=*/{}); !more.ok()) return more.status();
  if (before->empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<DeletionRecord>> after = manifest_->Deletions();
  if (!after.ok()) return after.status();
  for (const DeletionRecord& deletion : *before) {
    const bool stays = std::any_of(after->begin(), after->end(),
                                   [&](const DeletionRecord& other) { return other.attempt == deletion.attempt; });
    if (stays) continue;
    Tell({.kind = StoreChange::Kind::kRemoved,
          .step = deletion.step,
          .path = layout_.attempt(deletion.step, deletion.attempt),
          .why = "it was deleted, or replaced by another attempt"});
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Store::RemoveDeleted(const std::set<AttemptId>& in_use, size_t removals_max) {
  if (absl::Status held = names_.Check(); !held.ok()) return held;
  const WarnLater later(options_.warn);
  absl::MutexLock deleting(&deletions_mutex_);
  absl::StatusOr<bool> pending = manifest_->HasDeletions();
  if (!pending.ok() || !*pending) return pending;
  {
    absl::MutexLock lock(&records_mutex_);
    // What follows looks at durable records only, and may have to open the manifest anew for that.
    const auto write = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_) {
      const absl::Status status = RemoveSettledMark();
      return status.ok() ? manifest_->EnsureDurable() : status;
    };
    if (absl::Status status = WriteToFree(write); !status.ok()) return status;
  }
  return FinishDeletions(files_, layout_, *manifest_, in_use, removals_max, later.warn);
}

// Whether the store was closed in good order, by a library that knows of tags, and nobody has been at steps/ since. A
// mark that does not hold is removed.
absl::StatusOr<bool> Store::WasLeftSettled() {
  absl::MutexLock lock(&records_mutex_);
  absl::StatusOr<std::optional<SettledMark>> mark = manifest_->Settled();
  settled_mark_ = true;
  if (mark.ok() && !mark->has_value()) {
    settled_mark_ = false;
    return false;
  }
  // A mark that cannot be read says nothing.
  if (!mark.ok() && !absl::IsDataLoss(mark.status()) && !absl::IsUnimplemented(mark.status())) return mark.status();
  const std::string& list = manifest_->list_as_opened();
  if (mark.ok() && (*mark)->tags && !list.empty() && (*mark)->files == list) {
    absl::StatusOr<DirectoryStamp> stamp = files_.StampDirectory(layout_.steps());
    if (stamp.ok() && *stamp == (*mark)->steps) {
      settled_steps_ = *stamp;
      return true;
    }
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
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&records_mutex_);
  if (manifest_ == nullptr) return;
  if (manifest_->damage_found()) {
    if (absl::Status status = VoidSettledMark(); !status.ok()) {
      later.warn(fmt::format("the manifest is damaged, and the next start may not repair it: {}",
                             std::string(status.message())));
    }
    return;
  }
  if (left_unsettled_ || !open_attempts_.empty()) return;
  absl::Status status;
  if (settled_mark_) {
    // The list of the manifest's files began anew when it was opened. Of steps/ nobody here has changed anything.
    status = manifest_->SetSettledMark(settled_steps_);
  } else {
    // What was removed may otherwise be back after power loss, and the stamp with it.
    status = files_.SyncDirectory(layout_.steps());
    if (status.ok()) {
      absl::StatusOr<DirectoryStamp> stamp = files_.StampDirectory(layout_.steps());
      status = stamp.ok() ? manifest_->SetSettledMark(*stamp) : stamp.status();
    }
  }
  if (!status.ok()) {
    later.warn(
        fmt::format("the next start checks every step, because the clean-shutdown marker could not be written: {}",
                    std::string(status.message())));
  }
}

}  // namespace tidemark::storage
