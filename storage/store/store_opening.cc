// How a store is opened: the lock, the identity, a conversion from the first format, a journal that is lost.

#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "storage/bytes/checked_encoding.h"
#include "storage/bytes/ids.h"
#include "storage/io/fresh_look.h"
#include "storage/io/lock_note.h"
#include "storage/journal/journal_files.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/first_format/convert.h"
#include "storage/store/garbage.h"
#include "storage/store/identity_recovery.h"
#include "storage/store/index_state.h"
#include "storage/store/rebuild.h"
#include "storage/store/retired_shard.h"
#include "storage/store/store.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

// The number of tries, and the time between them, to lock a store that checkpoint-inspect holds: 10 s in all.
constexpr int kInspectTriesMax = 500;
constexpr absl::Duration kBetweenInspectTries = absl::Milliseconds(20);

absl::StatusOr<std::unique_ptr<FileLock>> TakeLock(FileSystem& files, const StoreLayout& layout, bool awaits_inspect) {
  for (int tries = 1;; ++tries) {
    absl::StatusOr<std::unique_ptr<FileLock>> lock = files.TryLock(layout.lock());
    if (lock.ok() || !absl::IsUnavailable(lock.status())) return lock;
    const absl::Status held = absl::UnavailableError(fmt::format(
        "store {} is open for writing elsewhere: {}", layout.directory(), std::string(lock.status().message())));
    if (!awaits_inspect || tries == kInspectTriesMax) return held;
    const absl::StatusOr<std::string> note = files.ReadNote(layout.lock(), kNoteBytesMax);
    if (!note.ok() || !MayBeInspect(*note)) return held;
    absl::SleepFor(kBetweenInspectTries);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(FileSystem& files, StoreOptions options) {
  if (options.directory.empty()) return absl::InvalidArgumentError("the directory of the store is empty");
  std::unique_ptr<Store> store(new Store(files, std::move(options)));
  if (absl::Status status = store->Initialize(); !status.ok()) return status;
  return store;
}

absl::StatusOr<std::unique_ptr<Store>> Store::Join(FileSystem& files, StoreOptions options, const HeldStore& held) {
  if (options.directory.empty()) return absl::InvalidArgumentError("the directory of the store is empty");
  std::unique_ptr<Store> store(new Store(files, std::move(options)));
  if (absl::Status status = store->InitializeJoined(held); !status.ok()) return status;
  return store;
}

absl::Status Store::InitializeJoined(const HeldStore& held) {
  // Rank 0 may have made it just now.
  storage::LookAfresh(files_, fmt::format("{}/.look-{}", layout_.directory(), ToHex(RandomBytes16())));
  const absl::StatusOr<StoreId> id = ReadStoreIdentity(files_, layout_);
  if (!id.ok()) return id.status();
  if (*id != held.id) {
    return absl::NotFoundError(
        fmt::format("{} is store {}, and rank 0 has opened store {}: all ranks need one directory", layout_.directory(),
                    ToHex(id->bytes), ToHex(held.id.bytes)));
  }
  id_ = *id;
  absl::StatusOr<std::unique_ptr<StoreJournal>> journal =
      StoreJournal::Open(files_, layout_, id_, {.appends = true, .warn = options_.warn});
  if (!journal.ok()) return journal.status();
  journal_ = *std::move(journal);
  if (absl::Status looked = journal_->LookAfresh().status(); !looked.ok()) return looked;
  if (journal_->applied().number < held.place.number) {
    return absl::OutOfRangeError(fmt::format(
        "the journal of {} ends at entry {}, and rank 0 has seen entry {}: the directory is another one, or its file "
        "system shows an old state",
        layout_.directory(), journal_->applied().number, held.place.number));
  }
  for (const std::string& path : {layout_.directory(), layout_.steps(), layout_.journal()}) {
    if (absl::Status status = names_.Add(path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Store::Initialize() {
  if (!options_.create) {
    const absl::StatusOr<FoundIdentity> there = FindIdentity(files_, layout_);
    if (absl::IsNotFound(there.status()) || (there.ok() && !there->id)) {
      return absl::NotFoundError(
          fmt::format("there is no store in {}, and the option create is false", layout_.directory()));
    }
    if (!there.ok()) return there.status();
  }
  if (absl::Status status = CreateDirectories(files_, layout_.directory()); !status.ok()) return status;
  // A directory that is not ours gets neither LOCK nor steps/.
  if (absl::StatusOr<FoundIdentity> identity = FindIdentity(files_, layout_); !identity.ok()) return identity.status();
  absl::StatusOr<std::unique_ptr<FileLock>> lock = TakeLock(files_, layout_, options_.awaits_inspect);
  if (!lock.ok()) return lock.status();
  lock_ = *std::move(lock);
  absl::Status status = names_.Add(layout_.directory());
  if (status.ok()) status = names_.Add(layout_.lock());
  if (status.ok()) status = SetUp();
  if (status.ok()) status = names_.Add(layout_.steps());
  if (status.ok()) status = names_.Add(layout_.journal());
  return status;
}

absl::Status Store::SetUp() {
  absl::Status status = lock_->WriteNote(DescribeThisProcess());
  if (!status.ok()) return status;
  // Another process may have made the store since the first look.
  absl::StatusOr<FoundIdentity> identity = FindIdentity(files_, layout_);
  if (!identity.ok()) return identity.status();
  // What an old listing of a file server lacks must not be taken for missing.
  const bool may_be_old = identity->format < kStoreFormat || !files_.TypeOf(layout_.journal()).ok();
  if (may_be_old) {
    storage::LookAfresh(files_, fmt::format("{}/.look-{}", layout_.directory(), ToHex(RandomBytes16())));
    identity = FindIdentity(files_, layout_);
    if (!identity.ok()) return identity.status();
  }
  status = files_.CreateDirectory(layout_.steps());
  if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  // Also where it was there: a crash may have come between its making and this.
  if (status = files_.SyncDirectory(layout_.directory()); !status.ok()) return status;
  id_ = identity->id.value_or(StoreId{RandomBytes16()});
  if (status = FinishRebuild(files_, layout_, options_.warn); !status.ok()) return status;
  absl::StatusOr<bool> old = false;
  if (may_be_old) old = IsOfFirstFormat(files_, layout_);
  if (!old.ok()) return old.status();
  // No version reads the reserve. Its removal makes room for the journal on a full disk.
  if (*old) RemoveTree(files_, layout_.reserve()).IgnoreError();
  // The format is written before the conversion. Else an older library could write to the store after a conversion,
  // also after one that failed, and that would be lost.
  if (identity->format < kStoreFormat) {
    if (identity->id && !identity->written.ok()) {
      options_.warn(fmt::format("store.json was rewritten from the index or the shards: {}",
                                std::string(identity->written.message())));
    }
    if (status = WriteIdentity(); !status.ok()) return status;
    if (*old && options_.note) {
      options_.note("the store has format 2 now, which older versions of the library cannot open");
    }
  }
  if (*old) status = ConvertFirstFormat(files_, layout_, id_, options_.read, options_.warn);
  if (!status.ok()) return status;
  absl::StatusOr<bool> lost = HasLostItsJournal();
  if (!lost.ok()) return lost.status();
  status = *lost ? absl::DataLossError("it is lost") : OpenJournal();
  if (status.ok() && options_.checks_journal) status = CheckJournal();
  // kAborted: see JournalFiles::CheckIsMissing.
  if (absl::IsDataLoss(status) || (absl::IsAborted(status) && options_.checks_journal))
    status = MakeJournalAnew(status);
  return status.ok() ? ClearFirstFormat() : status;
}

absl::Status Store::MakeJournalAnew(const absl::Status& why) {
  options_.warn(fmt::format("the journal cannot be read and is made anew: {}", std::string(why.message())));
  journal_.reset();
  absl::Status status = RebuildJournal(files_, layout_, id_, options_.read, options_.warn);
  return status.ok() ? OpenJournal() : status;
}

// kDataLoss: an entry that the index has applied is damaged, so readers without the index cannot read the journal.
absl::Status Store::CheckJournal() {
  const absl::StatusOr<std::unique_ptr<StoreJournal>> whole =
      StoreJournal::Open(files_, layout_, id_, {.appends = true, .warn = options_.warn});
  if (!whole.ok()) return whole.status();
  const absl::StatusOr<bool> same = SaysTheSame(catalog(), (*whole)->catalog());
  if (same.ok() && *same) return absl::OkStatus();
  options_.warn(fmt::format("the index is made anew, because it {}",
                            same.ok() ? "differs from the journal" : "cannot be read: " + same.status().ToString()));
  journal_.reset();
  absl::Status status = RemoveIndex(files_, layout_.index());
  return status.ok() ? OpenJournal() : status;
}

// What a conversion leaves: the old files, and attempts that were never committed.
absl::Status Store::ClearFirstFormat() {
  const absl::Status there = files_.TypeOf(layout_.manifest()).status();
  if (!there.ok()) return absl::IsNotFound(there) ? absl::OkStatus() : there;
  if (absl::Status status = Sweep({}, options_.warn); !status.ok()) return status;
  RemoveFirstFormat(files_, layout_, options_.warn);
  return absl::OkStatus();
}

// Before the first entry of a journal there is no attempt, and without its folder no index.
absl::StatusOr<bool> Store::HasLostItsJournal() const {
  const JournalFiles journal(files_, layout_.journal());
  const absl::Status first = files_.TypeOf(journal.PathOf(1)).status();
  // kFailedPrecondition: a name on the way is no folder, which opening tells of.
  if (first.ok() || absl::IsFailedPrecondition(first)) return false;
  if (!absl::IsNotFound(first)) return first;
  const absl::Status folder_there = files_.TypeOf(layout_.journal()).status();
  if (!folder_there.ok() && !absl::IsNotFound(folder_there)) return folder_there;
  if (folder_there.ok()) {
    journal.LookAfresh(1);
    const absl::StatusOr<EntryNumber> highest = journal.Highest();
    if (!highest.ok() && !absl::IsNotFound(highest.status())) return highest.status();
    if (highest.ok() && *highest > 0) return false;
  }
  if (absl::Status missing = journal.CheckIsMissing(1); absl::IsAborted(missing) && !options_.checks_journal) {
    return missing;
  }
  const absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files_, layout_);
  if (!folders.ok()) return folders.status();
  if (!folders->empty() || folder_there.ok()) return !folders->empty();
  const absl::Status index = files_.TypeOf(layout_.index()).status();
  if (!index.ok() && !absl::IsNotFound(index)) return index;
  return index.ok();
}

// kDataLoss: see StoreJournal::Open; or an attempt is of a later epoch than any that the journal knows.
absl::Status Store::OpenJournal() {
  absl::StatusOr<std::unique_ptr<StoreJournal>> journal =
      StoreJournal::Open(files_, layout_, id_, {.holder = true, .warn = options_.warn});
  if (!journal.ok()) return journal.status();
  journal_ = *std::move(journal);
  next_sequence_ = catalog().last_sequence() + 1;
  return journal_->index_is_new() ? CheckEpochs(files_, layout_, catalog(), journal_->epoch()) : absl::OkStatus();
}

absl::Status Store::WriteIdentity() {
  const auto encoded = EncodeAndCheck("store.json", id_, EncodeStoreIdentity, DecodeStoreIdentity);
  if (!encoded.ok()) return encoded.status();
  return WriteFileDurably(files_, layout_.identity(), encoded->bytes);
}

}  // namespace tidemark::storage
