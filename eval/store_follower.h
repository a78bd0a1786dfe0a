// StoreFollower: the loop of FollowStore, with the disk, the clock and the waiting as its maker gives them.

#ifndef TIDEMARK_EVAL_STORE_FOLLOWER_H_
#define TIDEMARK_EVAL_STORE_FOLLOWER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "eval/step_backlog.h"
#include "storage/io/file_system.h"
#include "storage/io/held_names.h"
#include "storage/store/lease.h"
#include "storage/store/store_journal.h"
#include "storage/store/store_layout.h"
#include "tidemark/worker.h"

namespace tidemark {

// kInvalidArgument names the option, its value and the legal range.
absl::Status ValidateWorkerOptions(const WorkerOptions& options);

// What a follower lives on. All of it is called by the thread that runs it.
struct FollowerParts {
  std::function<std::string()>
      locate;  // the store's path, absolute and without links; asked until its journal is seen
  // Makes the file system that holds that directory; see PosixFileSystemAt.
  std::function<std::shared_ptr<storage::FileSystem>(const std::string& directory)> hold;
  std::function<absl::Time()> now;               // a monotonic clock
  std::function<bool()> signalled;               // whether the process was asked to end
  std::function<void(absl::Duration)> wait;      // for so long, or until it is
  std::string machine = storage::ThisMachine();  // as in LeaseObserver
};

// Owned by the thread that runs it.
class StoreFollower {
 public:
  // Precondition: ValidateWorkerOptions says ok. The options' directory is not looked at: `parts` say where it is.
  StoreFollower(WorkerOptions options, EvaluatorFunction function, FollowerParts parts);

  // As FollowStore. Once.
  absl::StatusOr<WorkerReport> Run();

 private:
  enum class Sight {
    kNothing,     // there is no store
    kNoJournal,  // there is one, and its journal is being made or replaced
    kCurrent,     // the backlog is up to date
  };
  enum class Progress {
    kNone,       // there is nothing to do
    kBusy,       // others are at what is left, or something is waited for that should be back soon
    kEvaluated,  // a step was evaluated or skipped, and is done
  };
  absl::StatusOr<WorkerReport> RunToEnd();
  std::optional<WorkerReport::End> AskedToEnd() const;
  bool IsLastDone() const;
  bool IsUntilSeen() const;
  absl::StatusOr<Sight> Look();
  absl::StatusOr<Sight> FindJournal();
  Progress AwaitJournal();
  absl::StatusOr<Progress> DoNext();
  absl::StatusOr<bool> IsReported(const StepBacklog::Step& step) const;
  absl::StatusOr<Progress> Try(const StepBacklog::Step& step);
  std::string WhySkipped(const StepBacklog::Step& step) const;
  absl::StatusOr<Progress> Skip(const StepBacklog::Step& step, std::string why);
  absl::StatusOr<Progress> Evaluate(const StepBacklog::Step& step, const storage::StepRecord& record,
                                    storage::Lease* lease);
  absl::StatusOr<Evaluation> Ask(const storage::StepRecord& record) const;
  Progress NoteMissing(const StepBacklog::Step& step, const absl::Status& why);
  absl::Status Append(storage::StoreJournal::Compose compose);
  absl::Status Deliver(const StepBacklog::Step& step, Evaluation& row);
  void Done(const StepBacklog::Step& step, const Evaluation& row);
  // May quote other processes and paths: control characters are written out, see printable_text.h.
  void Warn(std::string_view text) const;

  const WorkerOptions options_;
  const EvaluatorFunction function_;
  const FollowerParts parts_;
  const std::optional<int64_t> last_to_do_;
  const StepBacklog::Filter asked_for_;

  std::shared_ptr<storage::FileSystem> files_;   // set when the store has been located
  std::unique_ptr<storage::HeldNames> names_;  // the store's directory; set together with the journal
  storage::StoreId store_;                          // set together with the journal
  std::unique_ptr<storage::StoreJournal> journal_;  // null: there is no store yet, and where it will be is not settled
  storage::StoreLayout layout_;
  StepBacklog backlog_;
  bool behind_ = true;                            // the backlog may have missed changes
  std::optional<storage::LeaseObserver> leases_;  // there when the journal is
  bool warned_of_format_ = false;                 // that the store waits to be converted
  // Since when the journal has been away, while it is.
  std::optional<absl::Time> replaced_since_;
  // What is committed, but has been looked for in vain.
  struct Missing {
    int tries = 0;
    absl::Time again;  // when it is looked for the next time
  };
  std::map<storage::AttemptId, Missing> missing_;
  std::set<storage::AttemptId> tried_;  // attempts that this follower does not evaluate again, recorded or not
  WorkerReport report_;
};

}  // namespace tidemark

#endif  // TIDEMARK_EVAL_STORE_FOLLOWER_H_
