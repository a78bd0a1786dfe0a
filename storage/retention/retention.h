// Retention at work: plans, deletes, removes files. The deletion is an entry of the journal, and the files go after it:
// so it resumes after a kill, and a reader's lease that comes in between keeps the files until it ends.

#ifndef TIDEMARK_STORAGE_RETENTION_RETENTION_H_
#define TIDEMARK_STORAGE_RETENTION_RETENTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/io/warn_once.h"
#include "storage/retention/retention_plan.h"
#include "storage/store/lease.h"
#include "storage/store/store.h"

namespace tidemark::storage {

// Thread-compatible: owned by the thread that keeps house. Refers to what it is made with.
class Retention {
 public:
  using Warn = std::function<void(std::string_view)>;
  // What this process itself has yet to read; null: nothing. Asked after the steps have been read: a step that is
  // claimed before it is committed is then never seen without its claim.
  using ReadClaims = std::function<Claims()>;
  // The steps that an evaluator in this process has yet to give its row on; null: none. Asked behind the claims.
  // nullopt: nobody knows any more; nothing is deleted then (kCancelled).
  using ReadUnjudged = std::function<std::optional<std::set<int64_t>>()>;

  // Precondition: ValidateRetention(options) and ResolveBestModes(.., options) were ok.
  Retention(FileSystem& files, Store& store, RetentionOptions options, Warn warn);
  // For tests: with an observer of leases that has a machine and a clock of their choice, and changing so many records
  // and removing so many attempts at a time.
  Retention(Store& store, RetentionOptions options, Warn warn, LeaseObserver leases, size_t changes_max = kChangesMax);

  // What Apply would do, with `claims` of this process beside the leases of others. An error is the catalog's, or says
  // that it is not known what is leased, or, kCancelled, what is unjudged.
  absl::StatusOr<std::vector<RetentionDecision>> Plan(const ReadClaims& claims, const ReadUnjudged& unjudged = {});

  // Deletes the steps that the plan does not keep, with the reason, and notes on the others why they stay, in entries
  // of the journal. Then removes the files of deleted steps that no step refers to and no reader has. Returns what was
  // deleted. Files that cannot be removed stay, with a warning, and the next call tries again; so do files that a
  // reader has, without a warning. Without a rule it only removes files. After an error nothing was deleted, unless an
  // append was what failed; files of steps that were deleted before may be gone.
  //
  // One call changes a bounded number of records, lowest steps first, and removes the files of as many attempts, so
  // that saves and reports wait for it only so long; unfinished() says whether the next call would do more.
  absl::StatusOr<std::vector<RetentionDecision>> Apply(const ReadClaims& claims, const ReadUnjudged& unjudged = {});
  bool unfinished() const { return unfinished_; }

  // A step that somebody wants gone, whatever the rules say.
  struct Unwanted {
    int64_t step = 0;
    AttemptId attempt;
    std::string reason;  // for its record
  };
  // What became of them, by their place in the list. A place in neither was not come to: the next call may do better.
  struct DeleteResult {
    std::set<size_t> deleted;            // by this call; their files are for Apply
    std::map<size_t, std::string> kept;  // and why: it is not committed in this attempt, or no rule may let go of it
    bool more = false;                   // the bound has left some
  };
  // Deletes them, except those that stay under all rules (see include/tidemark/retention.h). One call changes a bounded
  // number of records. After an error nothing was deleted, unless an append was what failed.
  absl::StatusOr<DeleteResult> LetGo(const std::vector<Unwanted>& unwanted, const ReadClaims& claims,
                                     const ReadUnjudged& unjudged = {});

  // The steps that a call has deleted, in its order, and why it ended before the others.
  struct Discarded {
    std::vector<int64_t> deleted;
    bool began = false;  // there were steps to delete; after an error some may be deleted that `deleted` lacks
    absl::Status error;
  };
  // Deletes all committed steps behind `after`, with the reason: a run that goes on from an older step gives up the
  // later ones. The highest goes first, a bounded number in each entry. So a crash or an error in between leaves the
  // steps up to some number. Their files are for Apply.
  //   kFailedPrecondition: see CheckDiscard; nothing was deleted.
  void DiscardAfter(int64_t after, const std::string& reason, const ReadClaims& claims, Discarded* discarded);

 private:
  absl::StatusOr<CommittedSteps> ReadCommitted(const ReadClaims& claims, Claims* all);
  // The committed steps as they were read, and what is to become of them.
  struct Planned {
    CommittedSteps steps;
    std::vector<RetentionDecision> decisions;  // one for each
  };
  absl::StatusOr<Planned> PlanCommitted(const RetentionOptions& options, const ReadClaims& claims,
                                        const ReadUnjudged& unjudged);
  absl::StatusOr<Planned> PlanByRules(const ReadClaims& claims, const ReadUnjudged& unjudged);
  absl::StatusOr<std::vector<LeaseObserver::Held>> LiveLeases();
  absl::StatusOr<bool> RemoveFiles();

  // Some 15 ms for the facts and 70 ms for the files on a local SSD.
  static constexpr size_t kChangesMax = 256;

  Store& store_;
  const RetentionOptions options_;
  const Warn warn_;
  LeaseObserver leases_;
  const size_t changes_max_;
  WarnOnce unreadable_leases_;
  bool unfinished_ = false;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RETENTION_RETENTION_H_
