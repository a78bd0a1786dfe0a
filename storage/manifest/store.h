// Store: a directory of checkpoints, held open for writing. Knows the order of things: what must be on disk before a
// step counts as committed, and what to make of a directory that a crash left behind.
//
// Invariants, after any crash: (I1) a committed step restores bit-exact; (I2) one that was not is wholly there or not
// at all; (I3) the latest step never goes back behind a committed one that was not discarded; (I4) wrong bytes never
// come back without an error; (I5) the next save works.

#ifndef TIDEMARK_STORAGE_MANIFEST_STORE_H_
#define TIDEMARK_STORAGE_MANIFEST_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "storage/io/file_system.h"
#include "storage/io/held_names.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/store_change.h"
#include "storage/manifest/store_layout.h"
#include "storage/manifest/warn_later.h"
#include "storage/shard/shard_reader.h"

namespace tidemark::storage {

struct StoreOptions {
  std::string directory;
  std::function<void(std::string_view)> warn;  // any thread; not null
  // What opening removed of a save that a kill cut short, which is no fault. The opener's thread; null: not told.
  std::function<void(std::string_view)> note = nullptr;
  ShardReadOptions read;              // for verifying an attempt before it is adopted
  bool look_at_everything = false;    // opening looks at every step, in whatever order the store was closed
  OnStoreChange on_change = nullptr;  // of what opening does; the opener's thread
  bool create = true;                 // false: kNotFound where there is no store
  bool awaits_inspect = false;        // see kInspectTriesMax
};

// Thread-safe, but attempts go one after the other: BeginAttempt, then CommitAttempt or AbandonAttempt.
//
// A call that changes the store is kFailedPrecondition, "the store ... was moved or replaced", if the path does not
// lead any more to the directory, lock, steps and manifest that were opened. Another process may hold the store that is
// there now, or open the one that was moved away.
class Store {
 public:
  // Creates the directory and what belongs into it, or opens what is there: takes the lock, then reconciles manifest
  // and shards. See AsyncCheckpointer::Open for the errors.
  static absl::StatusOr<std::unique_ptr<Store>> Open(FileSystem& files, StoreOptions options);

  // The number of times that an opener with `awaits_inspect` tries to lock a store that checkpoint-inspect holds. With
  // the sleeps in between this takes 10 s. A pin holds the store for some 50 ms, and a trainer that starts just then
  // should not fail. If the command takes longer, as a repair may, the answer is kUnavailable.
  static constexpr int kInspectTriesMax = 500;
  static constexpr absl::Duration kBetweenInspectTries = absl::Milliseconds(20);

  // Records that the store was closed in good order, if it was: no attempt is open or left behind, the store is where
  // it was opened, and no damage was found in the manifest. Otherwise, and if that fails, the next Open checks
  // everything, as after a crash. Then releases the lock.
  ~Store();

  const StoreLayout& layout() const { return layout_; }
  const StoreId& id() const { return id_; }
  const Manifest& manifest() const { return *manifest_; }
  const StepCatalog& catalog() const { return *manifest_; }  // what is recorded, for questions

  // kFailedPrecondition: the store was moved or replaced; calls that change it would say so. Other errors: those of
  // FileSystem::Identify.
  absl::Status CheckPlace() const { return names_.Check(); }

  // Makes the folder of a new attempt at the step.
  absl::StatusOr<ShardIdentity> BeginAttempt(int64_t step);

  // Whether the attempt's shard is there already, as a file that was retired and can be written over; see
  // retired_shard.h. Between BeginAttempt and writing the shard.
  bool Recycle(const ShardIdentity& identity);

  // Syncs the folders and commits `record`, whose shards have been synced: when this returns ok, the step survives
  // power loss. Afterwards the attempt that it replaces, if any, is removed, and any replaced before that only this one
  // referred to, if there are not too many marked for deletion before them; failing at that is only a warning, for the
  // next Open tries again. `phases`: what is known by now of the save's; may be null.
  //
  // After an error the files stay, for the commit may have reached the disk: the next Open adopts them where they are
  // whole, and the save was not in vain. But they go, unless they turn out to be committed, before anything is
  // acknowledged that they would undo: a later commit, after which a failure is only a warning and tried again with the
  // next; or that the step is deleted, unpinned, untagged, pinned with another note, or recorded as evaluated. So they
  // do where BeginAttempt finds no room, and in MakeRoom.
  absl::Status CommitAttempt(const StepRecord& record, const PhasesRecord* phases = nullptr);

  // What is known of a committed step's phases when it is. See Manifest::NotePhases.
  void NotePhases(PhasesRecord phases) { manifest_->NotePhases(std::move(phases)); }

  // Removes what there is of the attempt and records that it failed, and why, unless the step has a record of something
  // else than a failure.
  // Best effort: what a disk that is full or gone refuses is tried again with the next commit or failure.
  void AbandonAttempt(const ShardIdentity& identity, absl::Time created, const absl::Status& why);

  // For whoever finds no room for a shard: lets go of what commits that failed have left, unless they turn out to be
  // committed, by the room that is set aside where there is no other. Best effort, with a warning.
  void MakeRoom();

  // Adds to the record of a step under the lock that keeps others from it: `change` returns whether there is anything
  // to write, leaves step and attempt as they are, and calls nothing of the store. kNotFound if its record is not of
  // that attempt any more. Of a step that is damaged or lost, what a failed commit has left stays nevertheless.
  absl::Status UpdateStep(int64_t step, const std::string& attempt, absl::FunctionRef<bool(StepRecord&)> change);

  // Records a step that was only evaluated, unless it has a record already. Precondition: its state is kUnsaved.
  absl::Status RecordUnsaved(const StepInfo& info);

  // Marks committed steps as deleted with these reasons and replaces what is noted on others, all in one batch; of the
  // notes the first ones, for not more than kNotedBytesMax of records and one. A
  // record that is not of the given attempt or not committed any more is left as it is; so is one that is to be deleted
  // and has been pinned, or is the latest committed one. One whose folder has a pin that its record does not know of is
  // pinned; one where nobody can say is left, and is among `unsure`.
  struct StepNote {
    int64_t step = 0;
    std::string attempt;
    bool deleted = false;
    std::string reason;  // why it is deleted, or kept
  };
  struct NotedSteps {
    std::set<int64_t> deleted;     // their files are for RemoveDeleted
    size_t notes = 0;              // so many of the notes have been seen to
    std::optional<int64_t> stays;  // of `discard_after`: it is pinned
    std::map<int64_t, absl::Status> unsure;
  };
  //
  // With `discard_after` the notes are deletions of steps behind that one, the highest first, and the latest one is
  // deleted too. A call ends before the first step that stays, and has that step in `stays`. So what is deleted is the
  // end of the history, whatever happens. Attempts behind `discard_after` that a failed commit has left are removed
  // first: none comes back. kFailedPrecondition: no step up to `discard_after` is committed.
  absl::StatusOr<NotedSteps> NoteSteps(const std::vector<StepNote>& notes,
                                       std::optional<int64_t> discard_after = std::nullopt);
  // Fits into the room that is set aside; see disk_reserve.h.
  static constexpr size_t kNotedBytesMax = 256 << 10;

  // See Manifest::AddBestModes.
  absl::StatusOr<BestModes> AddBestModes(const BestModes& modes);

  // Removes the files of attempts that are marked for deletion, but for those that a step refers to, that are leased or
  // that are in `in_use`; of so many attempts at most. Returns whether there are more. See FinishDeletions in
  // reconciliation.h.
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();
  absl::StatusOr<bool> RemoveDeleted(const std::set<AttemptId>& in_use, size_t removals_max = kAll);

  // Somebody else may have taken the room that is set aside: the next commit sets it aside again where it is gone.
  void LookForReserve();

  // Keeps retention from deleting a committed step, and lets go of it; both survive power loss when they return ok, and
  // a rebuild of the manifest. A step stays pinned when another attempt takes its place; where that one's folder
  // refuses the pin, only the record has it, with a warning. After an error the step is pinned or not, and the next
  // Open or NoteSteps settles which: it is if its folder says so. kNotFound: the step is not committed; to Unpin, it
  // has no attempt; or it has another one than `attempt`, where one is given. kInvalidArgument: the note is longer than
  // kPinNoteBytesMax. Pin keeps the tags that the step has; Unpin removes them.
  absl::Status Pin(int64_t step, std::string_view note, std::optional<AttemptId> attempt = std::nullopt);
  absl::Status Unpin(int64_t step, std::optional<AttemptId> attempt = std::nullopt);

  // Gives a committed step a name, and pins it with an empty note if it is not pinned; takes the name from a step,
  // which stays pinned. Done again, each changes nothing. Both add what tags the folder has besides. That another step
  // has the name is no matter here. Both survive as a pin does, and after an error the step has the name or not, which
  // the next Open settles: it has it if record or folder says so. kNotFound: as for Pin and Unpin. Of Tag:
  // kInvalidArgument, see CheckTag; kOutOfRange: the step has kTagsPerStepMax others.
  absl::Status Tag(int64_t step, std::string_view name, std::optional<AttemptId> attempt = std::nullopt);
  absl::Status Untag(int64_t step, std::string_view name, std::optional<AttemptId> attempt = std::nullopt);

  // Records what was found out about a committed step. kNotFound if its record is not of that attempt any more, or if
  // the step has been deleted since.
  absl::Status MarkStep(int64_t step, const std::string& attempt, StepState state, std::string_view reason);

 private:
  // One that failed, and that may be in steps/, or there again after power loss.
  struct AbandonedAttempt {
    DeletionRecord deletion;
    uint64_t sequence = 0;
    absl::Time created;
    std::string why;
    bool whole = false;  // it was its commit that failed
  };

  Store(FileSystem& files, StoreOptions options);

  absl::Status Initialize();
  absl::StatusOr<std::unique_ptr<FileLock>> TakeLock() const;
  absl::Status SetUp();
  absl::Status OpenManifest();
  absl::Status SettleIdentity(const StoreId& of_manifest);
  absl::Status StartEmptyManifest(const absl::Status& why);
  absl::Status WriteIdentity(const absl::Status& why);
  absl::Status Rebuild(const absl::Status& why);
  void Tell(const StoreChange& change) const;
  absl::Status Reconcile();
  absl::Status RemoveDeletedAndTell();
  absl::StatusOr<bool> WasLeftSettled();
  absl::Status VoidSettledMark() ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  absl::Status RemoveSettledMark() ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  void RecordSettled();
  absl::Status OpenOrRebuild();
  absl::Status OpenAndReconcile();
  absl::Status WriteToFree(absl::FunctionRef<absl::Status()> write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  absl::StatusOr<StepRecord> FindToPin(std::string_view what, int64_t step, const std::optional<AttemptId>& attempt,
                                       bool only_committed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  absl::Status AddToPin(const StepRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  absl::Status TakeFromPin(const StepRecord& record, bool changed, const WarnLater::Warn& warn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  absl::Status SyncFolders(const StepFolder& folder);
  absl::Status ChangeRecord(int64_t step, const std::string& attempt, absl::FunctionRef<bool(StepRecord&)> change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  void TidyAfterCommit(const StepFolder& folder, const WarnLater::Warn& warn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  absl::StatusOr<std::optional<DeletionRecord>> CommitLocked(StepRecord record, const PhasesRecord* phases,
                                                             const WarnLater::Warn& warn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  absl::Status DeleteAbandoned(absl::FunctionRef<bool(const AbandonedAttempt&)> which, const WarnLater::Warn& warn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  static bool IsNewer(const StepInfo& failed, const AbandonedAttempt& abandoned);
  bool DeleteToMakeRoom(const WarnLater::Warn& warn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);
  absl::Status DeleteAbandonedAt(int64_t step, const WarnLater::Warn& warn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(records_mutex_);

  // Constant after Open.
  FileSystem& files_;
  const StoreOptions options_;
  const StoreLayout layout_;
  StoreId id_;
  HeldNames names_;  // the store's directory, LOCK, steps/ and manifest/: checked before anything is acknowledged

  // Thread-safe.
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<Manifest> manifest_;
  std::atomic<uint64_t> next_sequence_{1};
  std::atomic<bool> recycled_{false};  // a shard came from the store's own directory since the last commit

  // Some 70 ms on a local SSD, for which the next save waits at most.
  static constexpr size_t kRemovalsPerCommitMax = 256;

  // Held by the one thread that removes the files of attempts. Before records_mutex_. That a save takes the retired
  // file meanwhile does no harm: it goes from one name to another in one step.
  absl::Mutex deletions_mutex_ ABSL_ACQUIRED_BEFORE(records_mutex_);

  // Held from reading a step's record to writing it back, so that no mark is put on an attempt that was just replaced.
  absl::Mutex records_mutex_;

  // Whether the manifest says that records and folders agree. Taken back, durably, before either changes; a save pays
  // for that once in the store's lifetime.
  bool settled_mark_ ABSL_GUARDED_BY(records_mutex_) = false;
  DirectoryStamp settled_steps_ ABSL_GUARDED_BY(records_mutex_);  // what it says, where it held when it was opened
  // Whether the next Open would find anything to do that a look at steps/ does not tell.
  bool left_unsettled_ ABSL_GUARDED_BY(records_mutex_) = true;
  std::set<AttemptId> open_attempts_ ABSL_GUARDED_BY(records_mutex_);
  std::vector<AbandonedAttempt> abandoned_ ABSL_GUARDED_BY(records_mutex_);
  // Whether no room may be set aside, since it was given up or there was none; see disk_reserve.h.
  bool lacks_reserve_ ABSL_GUARDED_BY(records_mutex_) = false;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_STORE_H_
