// SnapshotStream: the ordered publication of snapshots to consumers. The persister is one of them, evaluators are the
// others.

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_SNAPSHOT_STREAM_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_SNAPSHOT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "snapshot/consumers/evaluator_queue.h"
#include "snapshot/deadline.h"
#include "snapshot/serial_executor.h"
#include "snapshot/staging/staged_snapshot.h"
#include "tidemark/evaluator.h"

namespace tidemark {

class SnapshotConsumer {
 public:
  virtual ~SnapshotConsumer() = default;

  // Called on the consumer's own thread, once for each snapshot, in the order of publication, those that are not to be
  // saved included. Its memory goes back when the last consumer lets go of `snapshot`.
  virtual void Consume(std::shared_ptr<const StagedSnapshot> snapshot) = 0;

  // On the same thread and in the same order: a save of the step that was asked for, and that this process could not
  // begin, for the reason `why`.
  virtual void Refused(int64_t /*step*/, absl::Time /*created*/, const absl::Status& /*why*/) {}
};

// Its functions are called by one thread at a time (thread-compatible). A consumer has a thread and lags behind on its
// own; the snapshots it has not come to hold staging memory, whose bound is the only bound there is. An evaluator holds
// as many as its options say.
//
// Destruction waits for the consumers, and for no evaluator: see StopEvaluators.
class SnapshotStream {
 public:
  SnapshotStream() = default;
  ~SnapshotStream();

  // Not owned; must outlive the stream. Before the first Publish. kResourceExhausted: no thread for it.
  absl::Status AddConsumer(SnapshotConsumer* consumer);

  // Sees every snapshot from the next Publish on, and `earlier` before them (EvaluatorQueue::AddEarlier). See
  // AsyncCheckpointer::AddEvaluator for the errors.
  absl::Status AddEvaluator(EvaluatorOptions options, EvaluatorFunction function, EvaluatorHost host,
                            std::vector<EarlierStep> earlier = {});

  bool has_evaluators() const { return !evaluators_.empty(); }

  // At the start of a save, before it asks for memory or copies anything: waits for the evaluators that hold up the
  // trainer when they lag. False: one still does at the deadline.
  bool AwaitEvaluators(int64_t step, bool persist, const Deadline& deadline = Deadline::Never());

  // For a save of the step that finds no room: leaves out a snapshot that waits only until something newer comes
  // (WhenLagging::kLatest) and that nobody else holds; if possible one whose place the step is to take, else the
  // oldest. False: there is none. Whenever a consumer or an evaluator has let go of a snapshot, its arena notes it, for
  // another one may then be such.
  bool MakeRoom(int64_t step);

  // Whether every consumer has come to the end, so that evaluators alone hold snapshots, or will when who stages has
  // let go of them. When that becomes true the arena notes it too.
  bool ConsumersAreIdle() const;

  // Blocks for nobody.
  void Publish(std::shared_ptr<const StagedSnapshot> snapshot);

  // The same for a save that could not begin; see SnapshotConsumer::Refused.
  void PublishRefusal(int64_t step, absl::Time created, const absl::Status& why);

  // Blocks until every consumer has come to the end.
  void Drain();

  // Blocks until every evaluator has come to the end, and the sink has every row. Those that read from the shelf wait
  // for the consumers.
  void DrainEvaluators();

  // Both, but gives up at `deadline`. False: `*still_running` then names what was left, oldest first: "the save of step
  // 12", "evaluator 'x' at step 12". The first `*saves` of these are saves. Nothing is dropped; it goes on, and may be
  // waited for again.
  bool DrainUntil(const Deadline& deadline, std::vector<std::string>* still_running, size_t* saves = nullptr);

  // Whether the caller is on a thread of a consumer or an evaluator.
  bool OnOwnThread() const;

  // Leaves out what waits for evaluators, with rows that say so, and forgets the evaluators. One that is in its
  // function is left to itself, with all that it uses; nobody hears of what it finds. When this returns no sink and no
  // shelf is called any more.
  void StopEvaluators();

 private:
  // A consumer, and the steps that it has not come to the end of.
  struct Subscription {
    SnapshotConsumer* consumer = nullptr;
    absl::Mutex mutex;
    std::deque<int64_t> steps ABSL_GUARDED_BY(mutex);
    std::unique_ptr<SerialExecutor> executor;  // last: its thread ends before the rest goes
  };
  // Runs `give` on the consumer's thread, which ends with Taken.
  static void Give(Subscription& subscription, int64_t step, std::function<void()> give);
  static void Taken(Subscription& subscription);

  std::vector<std::unique_ptr<Subscription>> subscriptions_;
  std::vector<std::shared_ptr<EvaluatorQueue>> evaluators_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_SNAPSHOT_STREAM_H_
