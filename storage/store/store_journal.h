// A store's journal together with the catalog of what it says. Every change of a store goes through here, made by the
// process that holds the store, by a worker or by a command.

#ifndef TIDEMARK_STORAGE_STORE_STORE_JOURNAL_H_
#define TIDEMARK_STORAGE_STORE_STORE_JOURNAL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/journal/journal.h"
#include "storage/records/fact.h"
#include "storage/records/step_catalog.h"
#include "storage/store/index_catalog.h"
#include "storage/store/memory_catalog.h"
#include "storage/store/store_layout.h"
#include "storage/store/warn_later.h"

namespace tidemark::storage {

struct StoreJournalOptions {
  // The process holds the store: it begins an epoch, and has an index in the store's directory, which is made with the
  // journal if they are not there yet. Else the catalog is in memory, and what it appends counts in every epoch.
  bool holder = false;
  // The process will append, as a worker or a command does: entries that it misses it looks for past the caches of a
  // file server, for which it makes a file and removes it. Who holds a store always does so. A reader writes nothing.
  bool appends = false;
  bool collects_news = false;                  // for TakeNews; a holder always does
  std::function<void(std::string_view)> warn;  // any thread; not null
};

// Thread-safe. Changes are made one after the other; questions to the catalog wait for none of them.
//
// The catalog of a holder has established entries only. That of another process also has entries that are only visible:
// they may be shown, and what it appends carries them.
class StoreJournal {
 public:
  // Reads what the journal says. A holder's index is brought up to date. If it is damaged or of another history, it is
  // made anew once the journal has been read; if it cannot be read or written just now, as on a full disk, it is left
  // alone, and the catalog is in memory; both with a warning.
  //
  // kNotFound: there is no journal. kDataLoss: it belongs to another store; an entry is missing or damaged, and no
  // later one carries it, or the index has applied entries that the journal does not have. kUnimplemented: an entry is
  // of a newer version.
  static absl::StatusOr<std::unique_ptr<StoreJournal>> Open(FileSystem& files, const StoreLayout& layout,
                                                            const StoreId& store, StoreJournalOptions options);

  ~StoreJournal();

  // As of the last Look or Change. Where the index fails, the journal is read into memory, with a warning, and the
  // question is answered from there.
  const StepCatalog& catalog() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of the holder; 0 else.
  uint64_t epoch() const { return epoch_; }

  // The last entry that the catalog has.
  JournalPlace applied() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return now_.applied;
  }

  // How often the catalog was told, by any process, that a committed step is damaged or lost. Grows also where the
  // journal is read from its beginning. Thread-safe.
  uint64_t times_damaged() const { return times_damaged_; }

  // Whether Open had no index that proves how far the journal reached before.
  bool index_is_new() const { return index_is_new_; }

  // Whether the catalog has the journal's first entry.
  bool HasEntries() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return now_.applied.number > 0;
  }

  // Takes in what others have appended. Returns whether that was anything. A journal that was made anew is read from
  // its beginning; kNotFound while there is none.
  absl::StatusOr<bool> Look() ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, past the caches of a file server, for which a file is made and removed: finds all that was there before.
  absl::StatusOr<bool> LookAfresh() ABSL_LOCKS_EXCLUDED(mutex_);

  // Of a holder: takes in what is new. kAborted: a newer epoch has begun, so another process holds the store now.
  absl::Status CheckHolds() ABSL_LOCKS_EXCLUDED(mutex_);

  // The facts of others that were taken in since Open or the last call, in their order; none without
  // StoreJournalOptions::collects_news. They begin anew with a journal that was made anew.
  std::vector<Fact> TakeNews() ABSL_LOCKS_EXCLUDED(mutex_);

  // Appends one entry with the facts that `compose` gives. `compose` has the catalog with every entry before that one,
  // and is called again if another process appends in between. When this returns ok, the facts survive power loss and
  // the catalog has them. No facts, or an error: nothing is appended; `compose` is called again after a look past the
  // caches of a file server.
  //
  // After an error nothing was appended, except after kUnknown: then the entry may or may not survive, and the next
  // Look or Change of a holder finds out. The error is that of `compose`; or kAborted: a newer epoch has begun, so
  // another process has opened the store for writing; or that of the disk. `compose` runs with the journal locked.
  using Compose = absl::FunctionRef<absl::StatusOr<std::vector<Fact>>(const StepCatalog&)>;
  absl::Status Change(Compose compose, Journal::Room room = Journal::Room::kAny) ABSL_LOCKS_EXCLUDED(mutex_);

  // Of a holder: gets ready for the next changes (Journal::Maintain). To be called after a change, on a thread that
  // may be slow. Changes go on beside it.
  absl::Status Maintain() ABSL_LOCKS_EXCLUDED(mutex_);

  // These attempts' files are gone, and that is synced: the catalog forgets that they are garbage. An index that is
  // made anew knows them again.
  void ForgetGarbage(std::span<const AttemptId> attempts) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A catalog, and how far it has followed the journal.
  struct Following {
    std::shared_ptr<Journal> journal;  // shared with a Maintain that is running
    JournalPlace applied;              // what the catalog has
    // Of what the catalog has, the entries that were only visible when they were applied.
    std::map<EntryNumber, Digest128> provisional;
    // The catalog lacks something up to `applied`, or that the journal will not visit again, or an entry is applied in
    // part. So it is to be replaced.
    bool lags = false;
    absl::Status refused;       // why an entry cannot be understood: nothing after it is read
    Manifest* index = nullptr;  // one of the two says what the catalog says
    MemoryCatalog* memory = nullptr;
    const StepCatalog& catalog() const { return memory != nullptr ? *memory : static_cast<const StepCatalog&>(*index); }
  };
  // One reading of what is new.
  struct Reading {
    JournalPlace place;       // with `facts` applied
    std::vector<Fact> facts;  // that are not applied yet
    bool has_visible = false;
    bool is_replaced = false;  // what was only visible is gone
    absl::Status status;
  };

  StoreJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store, StoreJournalOptions options);

  absl::Status OpenHeld() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OpenIndex() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The index that is there, as far as it can be used; null: there is none, or it cannot be used, and `*why` says so.
  absl::StatusOr<std::unique_ptr<Manifest>> OpenUsableIndex(JournalPlace* applied, absl::Status* why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginIndex() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeIndex() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadIntoMemory(bool* has_visible) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JournalPlace AppliedByOldIndex() const;
  static absl::Status CheckReaches(const JournalPlace& applied, const JournalPlace& last);
  absl::StatusOr<Following> Follow(const JournalPlace& from) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish(Following following, std::unique_ptr<Manifest> index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveIndex(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const StepCatalog* InPlaceOf(const Manifest* index, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status FollowReplaced() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginEpoch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> Look(bool afresh) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TakeIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckEpoch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Read(Following& following, bool* has_visible) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Visit(const KnownEntry& known, bool is_established, Following& following, Reading& reading)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Flush(Following& following, Reading& reading) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Apply(Following& following, const JournalPlace& place, std::span<const Fact> facts);
  bool HasNews(const JournalView& view) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Warn(std::string_view what, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem& files_;
  const StoreLayout layout_;
  const StoreId store_;
  const StoreJournalOptions options_;
  uint64_t epoch_ = 0;
  bool index_is_new_ = false;

  absl::Mutex mutex_;
  const WarnLater* warnings_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the call that holds the mutex
  Following now_ ABSL_GUARDED_BY(mutex_);                        // what is asked
  bool collects_news_ ABSL_GUARDED_BY(mutex_) = false;
  EntryNumber heard_ ABSL_GUARDED_BY(mutex_) = 0;  // entries up to here are in news_, or are no news
  // The id of this process's entry whose append ended in kUnknown.
  std::optional<EntryId> unknown_ ABSL_GUARDED_BY(mutex_);
  std::vector<Fact> news_ ABSL_GUARDED_BY(mutex_);
  FileId index_folder_ ABSL_GUARDED_BY(mutex_);  // as it was opened

  // Catalogs that were replaced stay, because another thread may be asking them.
  std::vector<std::unique_ptr<IndexCatalog>> indexes_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<MemoryCatalog>> in_memory_ ABSL_GUARDED_BY(mutex_);
  std::atomic<const StepCatalog*> catalog_{nullptr};
  std::atomic<bool> is_behind_{false};  // an established change is not in the catalog yet
  std::atomic<uint64_t> times_damaged_{0};
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_STORE_JOURNAL_H_
