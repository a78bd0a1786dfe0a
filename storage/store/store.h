// Store: a directory of checkpoints, held open for writing, whose facts are in a journal. A step is committed
// when its entry is established; RocksDB is an index that can be made anew.
//
// Invariants, after any crash: (I1) a committed step restores bit-exact; (I2) one that was not is wholly there or not
// at all; (I3) the latest step never goes back behind a committed one that was not discarded; (I4) wrong bytes never
// come back without an error; (I5) the next save works.

#ifndef TIDEMARK_STORAGE_STORE_STORE_H_
#define TIDEMARK_STORAGE_STORE_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "storage/io/file_system.h"
#include "storage/io/held_names.h"
#include "storage/records/fact.h"
#include "storage/records/step_catalog.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/attempt_sink.h"
#include "storage/store/held_store.h"
#include "storage/store/step_changes.h"
#include "storage/store/store_journal.h"
#include "storage/store/store_layout.h"
#include "storage/store/warn_later.h"

namespace tidemark::storage {

struct StoreOptions {
  std::string directory;
  std::function<void(std::string_view)> warn;  // any thread; not null
  // What was removed of saves that were cut short, which is no fault. The thread that removes it; null: not told.
  std::function<void(std::string_view)> note = nullptr;
  ShardReadOptions read;        // for verifying attempts when the journal is made anew
  bool create = true;           // false: kNotFound where there is no store
  bool awaits_inspect = false;  // see Store::kInspectTriesMax
  // Reads the whole journal, and makes it anew if entries are damaged that only the index has, or the index if it says
  // anything else.
  bool checks_journal = false;
};

// Thread-safe, but attempts go one after the other; see AttemptSink.
//
// Errors of every call that changes the store, besides its own:
// - kFailedPrecondition: "the store ... was moved or replaced", because the path leads to another directory now; or
//   another process has opened the store for writing.
// - kUnknown: the change may or may not survive a power loss. The next call that changes the store finds out.
// - kResourceExhausted, kPermissionDenied, kInternal: of the disk. Nothing has changed.
class Store final : public AttemptSink {
 public:
  // Creates the directory and what belongs into it, or opens what is there: takes the lock, reads the journal and
  // begins an epoch. What a crash has left unfinished is removed by SweepUncommitted. Errors: kUnavailable, with the
  // holder, if another process holds the store; those of StoreJournal::Open; see AsyncCheckpointer::Open for the
  // others.
  static absl::StatusOr<std::unique_ptr<Store>> Open(FileSystem& files, StoreOptions options);

  // Opens, for another rank of the same job, the store that rank 0's process holds; `held` is its Held(). Takes no
  // lock.What is appended here is in no epoch, as what workers and commands append. What any process may change works:
  // reports, pins, tags, the record of a step that was only evaluated. Everything that only the holder does is
  // kFailedPrecondition, attempts included. Errors: kNotFound: the directory has no store, or another one than rank 0
  // has; kOutOfRange: the journal does not have the entry that rank 0 has seen.
  static absl::StatusOr<std::unique_ptr<Store>> Join(FileSystem& files, StoreOptions options, const HeldStore& held);

  ~Store() override;

  // Whether this process holds the store: Open has opened it, and not Join.
  bool is_holder() const { return lock_ != nullptr; }

  const StoreLayout& layout() const { return layout_; }
  const StoreId& id() const { return id_; }

  // What is recorded, as of the last call that changed the store or looked.
  const StepCatalog& catalog() const { return journal_->catalog(); }

  // See StoreJournal::times_damaged. Thread-safe.
  uint64_t times_damaged() const { return journal_->times_damaged(); }

  // What other ranks need to save with this holder, as of now. Thread-safe.
  HeldStore Held() const;

  // Whether opening has made the index anew.
  bool index_is_new() const { return journal_->index_is_new(); }

  absl::Status CheckPlace() const { return names_.Check(); }

  // Whether this process still holds the store, after a look at the journal.
  absl::Status CheckHolds();

  absl::StatusOr<ShardIdentity> BeginAttempt(int64_t step, const Digest128& structure = {}) override;
  bool Recycle(const ShardIdentity& identity) override;

  // Also removes the attempt that it replaces, and a bounded number of others that are garbage, unless another thread
  // removes files just now: the next call of RemoveDeleted does it then. Failing at that is only a warning. After an
  // error the attempt's files are removed; after kUnknown, when it is known that the step was not committed.
  absl::Status CommitAttempt(const StepRecord& record, const PhasesRecord* phases = nullptr) override;

  // Records the failure unless the step has a record of something else. Returns `why`.
  absl::Status AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why) override;

  // The same for an attempt that BeginAttempt has not made, whose shards and folders have been synced by the ranks.
  // kNotFound: a shard refers to a file that is not kept (CheckReferencesAreKept).
  absl::Status CommitSynced(const StepRecord& record, const PhasesRecord* phases = nullptr);

  // Whether the attempt was committed, after a commit that ended with kUnknown. Appends what settles it, if need be. To
  // be asked before anything replaces or deletes the step: of an attempt whose files were removed it is not known.
  absl::StatusOr<bool> SettleCommit(const StepFolder& folder);

  // What is known of a committed step's phases when it is. Appended with the next change, whatever that is, so it
  // costs no sync of its own. Only the holder's are kept.
  void NotePhases(PhasesRecord phases) ABSL_LOCKS_EXCLUDED(mutex_);
  // Appends what was noted last, unless a change has. At the end: no change follows.
  absl::Status RecordNotedPhases() ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes in what workers and commands have appended, and returns it.
  absl::StatusOr<std::vector<Fact>> Look();
  // The same, past the caches of a file server; see StoreJournal::LookAfresh.
  absl::Status LookAfresh();

  // Changes; see step_changes.h for what they do and for their errors.
  absl::Status Pin(int64_t step, std::string_view note, std::optional<AttemptId> attempt = std::nullopt);
  absl::Status Unpin(int64_t step, std::optional<AttemptId> attempt = std::nullopt);
  absl::Status Tag(int64_t step, std::string_view name, std::optional<AttemptId> attempt = std::nullopt);
  absl::Status Untag(int64_t step, std::string_view name, std::optional<AttemptId> attempt = std::nullopt);
  absl::Status MarkStep(int64_t step, const std::string& attempt, StepState state, std::string_view reason);
  absl::Status RecordUnsaved(const StepInfo& info);
  absl::StatusOr<std::vector<ReportOutcome>> RecordReports(std::span<const EvaluationFact> reports);
  absl::StatusOr<BestModes> AddBestModes(const BestModes& modes);
  absl::StatusOr<NotedSteps> NoteSteps(const std::vector<StepNote>& notes,
                                       std::optional<int64_t> discard_after = std::nullopt);
  // Requests were carried out, or are refused. An entry has as many answers as fit into it (kNotedBytesMax).
  // `answered`, if not null, gets the number of answers that are recorded, the first ones: after an error not all are.
  absl::Status Answer(std::span<const AnswerFact> answers, size_t* answered = nullptr);

  // The facts of one call of NoteSteps, and those of one entry of Answer, fit into a spare file of the journal. Both
  // may take the last ones. So steps can be deleted on a full disk.
  static constexpr size_t kNotedBytesMax = 3 << 10;

  // Removes the files of deleted and replaced attempts; see RemoveGarbage. Returns whether there are more.
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();
  absl::StatusOr<bool> RemoveDeleted(const std::set<AttemptId>& in_use, size_t removals_max = kAll);

  // Makes room for the next entries ahead, and packs old ones; see Journal::Maintain. To be called after a change, on
  // a thread that may be slow.
  absl::Status Maintain();

  // Removes what saves of earlier processes have left that were cut short. May come late: nothing waits for it.
  // `in_use`: what this process may read or refer to. `warn`: in the place of StoreOptions::warn.
  absl::Status SweepUncommitted(const std::set<AttemptId>& in_use = {},
                                const std::function<void(std::string_view)>& warn = nullptr);

 private:
  Store(FileSystem& files, StoreOptions options);

  absl::Status Initialize();
  absl::Status InitializeJoined(const HeldStore& held);
  absl::Status SetUp();
  absl::Status WriteIdentity();
  absl::Status OpenJournal();
  absl::Status MakeJournalAnew(const absl::Status& why);
  absl::Status CheckJournal();
  absl::Status ClearFirstFormat();
  absl::StatusOr<bool> HasLostItsJournal() const;
  absl::Status Sweep(const std::set<AttemptId>& in_use, const std::function<void(std::string_view)>& warn);
  absl::Status OfAnotherHolder(const absl::Status& status) const;
  absl::Status CheckIsHolder() const;
  absl::StatusOr<bool> WasCommitted(const StepFolder& folder) const;
  void RemoveFailedCommits();
  void RemoveReplaced(const WarnLater& later) ABSL_LOCKS_EXCLUDED(deletions_mutex_);
  absl::StatusOr<bool> RemoveDeletedLocked(const std::set<AttemptId>& in_use, size_t removals_max,
                                           const WarnLater& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(deletions_mutex_);
  absl::Status Change(StoreJournal::Compose compose, Journal::Room room = Journal::Room::kAny);
  absl::Status SyncFolders(const StepFolder& folder);
  absl::Status Commit(const StepRecord& record, const PhasesRecord* phases,
                      absl::FunctionRef<absl::Status(const StepFolder&)> sync,
                      absl::FunctionRef<absl::Status(const StepCatalog&)> check);

  // Constant after Open.
  FileSystem& files_;
  const StoreOptions options_;
  const StoreLayout layout_;
  StoreId id_;
  HeldNames names_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<StoreJournal> journal_;

  const SessionId session_{RandomBytes16()};

  std::atomic<uint64_t> next_sequence_{1};
  std::atomic<uint64_t> next_ordinal_{1};
  std::atomic<bool> recycled_{false};  // a shard came from the store's own directory since the last commit

  // Held by the one thread that removes the files of attempts. No callback runs under it.
  absl::Mutex deletions_mutex_;

  absl::Mutex mutex_;
  std::optional<PhasesRecord> noted_phases_ ABSL_GUARDED_BY(mutex_);
  std::map<AttemptId, std::unique_ptr<Directory>> open_attempts_ ABSL_GUARDED_BY(mutex_);  // with steps/
  // Their commits have failed, or it is not known whether they have.
  std::vector<StepFolder> failed_commits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_STORE_H_
