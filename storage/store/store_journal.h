// A store's journal together with the catalog of what it says. Every change of a store goes through here, whoever makes
// it: the process that holds the store, a worker, a command.

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
#include "storage/io/file_system.h"
#include "storage/journal/journal.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/store_layout.h"
#include "storage/records/fact.h"
#include "storage/records/step_catalog.h"
#include "storage/shard/ids.h"
#include "storage/store/memory_catalog.h"

namespace tidemark::storage {

struct StoreJournalOptions {
  // The process holds the store: it begins an epoch, and has an index in the store's directory, which is made with the
  // journal if they are not there yet. Else the catalog is in memory, and only facts of anybody can be appended.
  bool holder = false;
  std::function<void(std::string_view)> warn;  // any thread; not null
};

// Thread-safe. Changes are made one after the other; questions to the catalog wait for none of them.
//
// The catalog of a holder has established entries only. That of another process also has entries that are only visible:
// they may be shown, and what it appends carries them.
class StoreJournal {
 public:
  // Reads what the journal says. A holder's index is brought up to date, or made anew if it is missing, damaged or of
  // another history; where it cannot be written, as on a full disk, the catalog is in memory, with a warning.
  //
  // kNotFound: there is no journal. kDataLoss: an entry is missing or damaged, and no later one carries it, or the
  // index has applied entries that the journal does not have. kUnimplemented: an entry is of a newer version.
  static absl::StatusOr<std::unique_ptr<StoreJournal>> Open(FileSystem& files, const StoreLayout& layout,
                                                            const StoreId& store, StoreJournalOptions options);

  // As of the last Look or Change.
  const StepCatalog& catalog() const { return *catalog_; }

  // Of the holder; 0 else.
  uint64_t epoch() const { return epoch_; }

  // Whether Open had no index that proves how far the journal reached before.
  bool index_is_new() const { return index_is_new_; }

  // Takes in what others have appended. Returns whether that was anything.
  absl::StatusOr<bool> Look() ABSL_LOCKS_EXCLUDED(mutex_);

  // The facts of others that were taken in since the last call, in their order. Of a holder; empty else.
  std::vector<Fact> TakeNews() ABSL_LOCKS_EXCLUDED(mutex_);

  // Appends one entry with the facts that `compose` gives. `compose` has the catalog with every entry before that one,
  // and is called again if another process appends in between. No facts: nothing is appended. When this returns ok, the
  // facts survive power loss and the catalog has them.
  //
  // The error of `compose`: nothing was appended. kAborted: a newer epoch has begun, so another process has opened the
  // store for writing; nothing was appended. kUnknown: the entry may or may not survive; the next Look or Change of a
  // holder finds out. Other errors: nothing was appended.
  using Compose = absl::FunctionRef<absl::StatusOr<std::vector<Fact>>(const StepCatalog&)>;
  absl::Status Change(Compose compose, Journal::Room room = Journal::Room::kAny) ABSL_LOCKS_EXCLUDED(mutex_);

  // Of a holder: gets ready for the next changes (Journal::Maintain). To be called after a change, when nobody waits
  // for it. Changes go on beside it.
  absl::Status Maintain() ABSL_LOCKS_EXCLUDED(mutex_);

  // These attempts' files are gone, and that is synced: the catalog forgets that they are garbage. An index that is
  // made anew knows them again.
  void ForgetGarbage(std::span<const AttemptId> attempts) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  StoreJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store, StoreJournalOptions options);

  absl::Status OpenHeld() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OpenIndex() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckReaches(const JournalPlace& applied, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartIndex(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartInMemory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OpenJournal(const JournalPlace& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginEpoch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Read(bool* has_visible) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One reading of what is new.
  struct Reading {
    JournalPlace place;       // with `facts` applied
    std::vector<Fact> facts;  // that are not applied yet
    bool has_visible = false;
    bool starts_over = false;  // the catalog cannot go on, and is read into memory from the beginning
    absl::Status status;
  };
  void Visit(const KnownEntry& known, bool is_established, Reading& reading) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Flush(Reading& reading) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ApplyToCatalog(const JournalPlace& place, std::span<const Fact> facts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasNews(const JournalView& view) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WarnOfIndex(const absl::Status& why) const;

  FileSystem& files_;
  const StoreLayout layout_;
  const StoreId store_;
  const StoreJournalOptions options_;
  uint64_t epoch_ = 0;
  bool index_is_new_ = false;

  absl::Mutex mutex_;
  std::shared_ptr<Journal> journal_ ABSL_GUARDED_BY(mutex_);  // shared with a Maintain that is running
  JournalPlace applied_ ABSL_GUARDED_BY(mutex_);              // what the catalog has
  // Of what the catalog has, the entries that were only visible when they were applied.
  std::map<EntryNumber, Digest128> provisional_ ABSL_GUARDED_BY(mutex_);
  bool collects_news_ ABSL_GUARDED_BY(mutex_) = false;
  EntryNumber heard_ ABSL_GUARDED_BY(mutex_) = 0;  // entries up to here are in news_, or are no news
  std::vector<Fact> news_ ABSL_GUARDED_BY(mutex_);

  // One of the two is the catalog. An index that failed stays, because somebody may be asking it.
  std::unique_ptr<Manifest> index_;
  std::vector<std::unique_ptr<MemoryCatalog>> in_memory_ ABSL_GUARDED_BY(mutex_);  // the last one counts
  std::atomic<const StepCatalog*> catalog_{nullptr};
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_STORE_JOURNAL_H_
