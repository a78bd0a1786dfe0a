// StoreFollower: the loop of FollowStore, with the disk, the clock and the waiting as its maker gives them.

#ifndef TIDEMARK_EVAL_STORE_FOLLOWER_H_
#define TIDEMARK_EVAL_STORE_FOLLOWER_H_

#include <cstdint>
#include <functional>
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
#include "storage/manifest/lease.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/store_layout.h"
#include "tidemark/worker.h"

namespace tidemark {

// kInvalidArgument names the option, its value and the legal range.
absl::Status ValidateWorkerOptions(const WorkerOptions& options);

// What a follower lives on. All of it is called by the thread that runs it.
struct FollowerParts {
  storage::FileSystem& files;
  std::function<absl::Time()> now;               // a monotonic clock
  std::function<bool()> signalled;               // whether the process was asked to end
  std::function<void(absl::Duration)> wait;      // for so long, or until it is
  std::string machine = storage::ThisMachine();  // as in LeaseObserver
};

// Owned by the thread that runs it.
class StoreFollower {
 public:
  // Precondition: ValidateWorkerOptions says ok.
  StoreFollower(WorkerOptions options, EvaluatorFunction function, FollowerParts parts);

  // As FollowStore. Once.
  absl::StatusOr<WorkerReport> Run();

 private:
  enum class Progress {
    kNone,       // there is nothing to do
    kBusy,       // others are at what is left, or the manifest is being replaced
    kEvaluated,  // a report was delivered
  };
  std::optional<WorkerReport::End> AskedToEnd() const;
  bool IsUntilReached() const;
  absl::StatusOr<bool> Look();
  absl::StatusOr<Progress> DoNext();
  absl::StatusOr<Progress> Try(const StepBacklog::Step& step);
  absl::StatusOr<Progress> Evaluate(const StepBacklog::Step& step, const storage::StepRecord& record,
                                    storage::Lease& lease);
  absl::StatusOr<std::optional<Evaluation>> Ask(const storage::StepRecord& record) const;
  absl::Status Deliver(const StepBacklog::Step& step, Evaluation& row);
  void Warn(std::string_view line) const;

  const WorkerOptions options_;
  const EvaluatorFunction function_;
  const FollowerParts parts_;
  const storage::StoreLayout layout_;

  std::unique_ptr<storage::Manifest> manifest_;  // null: there is no store yet
  StepBacklog backlog_;
  bool behind_ = true;  // the backlog may have missed changes
  storage::LeaseObserver leases_;
  std::set<storage::AttemptId> vanished_;  // committed, but their files are not there
  WorkerReport report_;
};

}  // namespace tidemark

#endif  // TIDEMARK_EVAL_STORE_FOLLOWER_H_
