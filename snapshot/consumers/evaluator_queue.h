// EvaluatorQueue: one evaluator in this process, what waits for it, and the threads that call it.

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATOR_QUEUE_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATOR_QUEUE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "snapshot/consumers/evaluation_sink.h"
#include "snapshot/deadline.h"
#include "snapshot/saves/pending_save.h"
#include "snapshot/staging/snapshot_shelf.h"
#include "snapshot/staging/staged_snapshot.h"
#include "tidemark/evaluator.h"

namespace tidemark {

// kInvalidArgument names the field, its value and the legal range.
absl::Status ValidateEvaluatorOptions(const EvaluatorOptions& options);

// What evaluators need of whoever they belong to. Sink and shelf are not owned; they are called until Stop has
// returned.
struct EvaluatorHost {
  EvaluationSink* sink;
  SnapshotShelf* shelf;
  std::function<absl::Time()> now;  // the wall clock
};

// A step that was committed before the evaluator was there, and what its row says where it is not evaluated any more.
struct EarlierStep {
  std::shared_ptr<const PendingSave> save;
  std::string reason;
};

// Thread-safe. Shared with its threads, so that one whose function does not return can be left to itself.
//
// Every step that is a multiple of every_steps and was added makes exactly one row, until Stop.
class EvaluatorQueue : public std::enable_shared_from_this<EvaluatorQueue> {
 public:
  // kResourceExhausted: the system gives no thread. Precondition: the options are valid.
  static absl::StatusOr<std::shared_ptr<EvaluatorQueue>> Start(EvaluatorOptions options, EvaluatorFunction function,
                                                               EvaluatorHost host);
  // Precondition: Stop has been called.
  ~EvaluatorQueue();

  const std::string& name() const { return options_.name; }

  // At the start of a save, before anything is copied: blocks while the policy says so. False: it still does at the
  // deadline. A snapshot that is added without this may be one more than the options say.
  bool AwaitTurn(int64_t step, bool persist, const Deadline& deadline);

  // Takes the snapshot in, or not, as the policy says. Does not block, and throws nothing: a snapshot that there is no
  // memory for is left out.
  void Add(std::shared_ptr<const StagedSnapshot> snapshot);

  // Has it waited for with kQueue, to be read from the shelf, and else left out. Whether it is due is not asked.
  void AddEarlier(EarlierStep earlier);

  // Whether it is to evaluate the step.
  bool IsDue(int64_t step) const { return step % options_.every_steps == 0; }

  // What waits only until something newer comes, and may be left out for a save that needs the memory.
  std::vector<std::shared_ptr<const StagedSnapshot>> Yieldable() const;

  // Leaves the snapshot out. False: it does not wait any more.
  bool Yield(const StagedSnapshot& snapshot);

  // Waits until nothing is waiting or being evaluated, and every row has been given. False: not by the deadline; then
  // what was left is appended to `*still_running`, as "evaluator 'x' at step 12".
  bool DrainUntil(const Deadline& deadline, std::vector<std::string>* still_running) const;

  // Whether the caller is one of its threads.
  bool OnOwnThread() const;

  // Leaves out what waits, with rows but for what kQueue has of steps that are saved, and ends the threads. Those that
  // are in the function are left to themselves: what they touch stays as long as they do, and nobody hears of what they
  // find. Waits for no function. Idempotent.
  void Stop();

 private:
  // A snapshot that waits or is being evaluated.
  struct Pending {
    int64_t step() const { return save->step(); }
    // Held until the row is given, for the snapshot may go before.
    std::shared_ptr<const PendingSave> save;
    std::shared_ptr<const StagedSnapshot> snapshot;  // null: it is claimed, and to be read from the shelf
    // Of one that is to be read: what became of its save. Not there: not known yet. Changes while it waits, with
    // mutex_.
    std::optional<absl::Status> saved;
  };

  EvaluatorQueue(EvaluatorOptions options, EvaluatorFunction function, EvaluatorHost host);
  bool IsFull() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The steps that are being evaluated, ascending.
  std::vector<int64_t> Running() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  uint64_t RunningCount() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // On the evaluator's threads, with mutex_ not held.
  void Loop(size_t thread);
  void EvaluateAndRelease(std::shared_ptr<Pending> pending);
  void Evaluate(std::shared_ptr<Pending> pending);
  absl::StatusOr<std::shared_ptr<const Snapshot>> Prepare(std::shared_ptr<const StagedSnapshot> staged) const;
  absl::StatusOr<std::shared_ptr<const Snapshot>> ReadFromShelf(const Pending& pending);
  Evaluation Ask(const Snapshot& snapshot) const;

  // With mutex_ not held.
  void AddDue(std::shared_ptr<const StagedSnapshot> snapshot);
  void Queue(const StagedSnapshot& snapshot, std::shared_ptr<Pending> pending);
  void ClaimAndQueue(std::shared_ptr<Pending> pending);
  // These throw nothing: a row that there is no memory for is dropped.
  void LeaveOut(std::list<std::shared_ptr<Pending>> left, std::string_view reason);
  void Report(const PendingSave& save, Evaluation row);
  void Skip(const PendingSave& save, std::string_view reason);
  void ReleaseClaim(int64_t step);

  const EvaluatorOptions options_;
  const EvaluatorFunction function_;
  const std::string who_;  // for the shelf's claims

  mutable absl::Mutex mutex_;
  std::list<std::shared_ptr<Pending>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<int64_t>> running_ ABSL_GUARDED_BY(mutex_);  // by thread: its step
  mutable MonotonicCondVar done_;                                        // with one of either
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);

  // Held, shared, while the host is called, so that Stop knows when it is called no more. Never with mutex_.
  absl::Mutex host_mutex_;
  std::optional<EvaluatorHost> host_ ABSL_GUARDED_BY(host_mutex_);
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_EVALUATOR_QUEUE_H_
