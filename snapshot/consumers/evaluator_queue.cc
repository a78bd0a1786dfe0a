#include "snapshot/consumers/evaluator_queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "snapshot/consumers/filtered_snapshot.h"
#include "snapshot/guarded.h"
#include "storage/io/check.h"
#include "storage/io/exception_status.h"
#include "storage/records/metric_report.h"
#include "storage/store/store_identity.h"

namespace tidemark {
namespace {

constexpr int kEvaluatorThreadsMax = 64;

Evaluation Row(Evaluation::Outcome outcome, std::string_view reason) {
  Evaluation row;
  row.outcome = outcome;
  row.reason = std::string(reason);
  return row;
}

}  // namespace

absl::Status ValidateEvaluatorOptions(const EvaluatorOptions& options) {
  Evaluation named;
  named.evaluator = options.name;
  if (absl::Status status = storage::ValidateEvaluation(named); !status.ok()) {
    return absl::InvalidArgumentError(fmt::format("EvaluatorOptions::name: {}", std::string(status.message())));
  }
  if (options.max_pending < 1) {
    return absl::InvalidArgumentError(
        fmt::format("EvaluatorOptions::max_pending is {}; it must be at least 1", options.max_pending));
  }
  if (options.every_steps < 1) {
    return absl::InvalidArgumentError(
        fmt::format("EvaluatorOptions::every_steps is {}; it must be at least 1", options.every_steps));
  }
  if (options.threads < 1 || options.threads > kEvaluatorThreadsMax) {
    return absl::InvalidArgumentError(
        fmt::format("EvaluatorOptions::threads is {}; it must be 1 to {}", options.threads, kEvaluatorThreadsMax));
  }
  return absl::OkStatus();
}

EvaluatorQueue::EvaluatorQueue(EvaluatorOptions options, EvaluatorFunction function, EvaluatorHost host)
    : options_(std::move(options)),
      function_(std::move(function)),
      who_(fmt::format("evaluator '{}'", options_.name)),
      host_(std::move(host)) {}

EvaluatorQueue::~EvaluatorQueue() {
  absl::MutexLock lock(&mutex_);
  storage::Check(threads_.empty(), "an evaluator was destroyed without being stopped");
}

absl::StatusOr<std::shared_ptr<EvaluatorQueue>> EvaluatorQueue::Start(EvaluatorOptions options,
                                                                      EvaluatorFunction function, EvaluatorHost host) {
  std::shared_ptr<EvaluatorQueue> queue(new EvaluatorQueue(std::move(options), std::move(function), std::move(host)));
  try {
    const auto threads = static_cast<size_t>(queue->options_.threads);
    absl::MutexLock lock(&queue->mutex_);
    queue->running_.resize(threads);
    queue->threads_.reserve(threads);
    for (size_t i = 0; i < threads; ++i) queue->threads_.emplace_back([queue, i] { queue->Loop(i); });
  } catch (const std::system_error& error) {
    queue->Stop();
    return absl::ResourceExhaustedError(
        fmt::format("start {} threads for evaluator '{}': {}", queue->options_.threads, queue->name(), error.what()));
  } catch (...) {
    queue->Stop();
    return storage::ExceptionStatus("start threads for evaluator", queue->name());
  }
  return queue;
}

bool EvaluatorQueue::IsFull() const {
  return waiting_.size() + RunningCount() >= static_cast<uint64_t>(options_.max_pending);
}

std::vector<int64_t> EvaluatorQueue::Running() const {
  std::vector<int64_t> steps;
  for (const std::optional<int64_t>& step : running_) {
    if (step) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

uint64_t EvaluatorQueue::RunningCount() const {
  return static_cast<uint64_t>(
      std::count_if(running_.begin(), running_.end(), [](const auto& step) { return step.has_value(); }));
}

bool EvaluatorQueue::HasWork() const {
  if (waiting_.empty()) return false;
  // One waits beside the most that are evaluated, and must not become one of them.
  if (options_.when_lagging == WhenLagging::kLatest && RunningCount() >= static_cast<uint64_t>(options_.max_pending)) {
    return false;
  }
  return waiting_.front()->snapshot != nullptr || waiting_.front()->saved.has_value();
}

bool EvaluatorQueue::AwaitTurn(int64_t step, bool persist, const Deadline& deadline) {
  const bool blocks =
      options_.when_lagging == WhenLagging::kBlock || (options_.when_lagging == WhenLagging::kQueue && !persist);
  if (!blocks || !IsDue(step)) return true;
  absl::MutexLock lock(&mutex_);
  const auto has_room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !IsFull(); };
  return done_.Await(&mutex_, has_room, deadline);
}

std::vector<std::shared_ptr<const StagedSnapshot>> EvaluatorQueue::Yieldable() const {
  std::vector<std::shared_ptr<const StagedSnapshot>> snapshots;
  if (options_.when_lagging != WhenLagging::kLatest) return snapshots;
  absl::MutexLock lock(&mutex_);
  for (const std::shared_ptr<Pending>& pending : waiting_) snapshots.push_back(pending->snapshot);
  return snapshots;
}

bool EvaluatorQueue::Yield(const StagedSnapshot& snapshot) {
  std::list<std::shared_ptr<Pending>> left;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const std::shared_ptr<Pending>& pending) {
      return pending->snapshot.get() == &snapshot;
    });
    if (found == waiting_.end()) return false;
    left.splice(left.end(), waiting_, found);
    done_.NotifyAll();
  }
  LeaveOut(std::move(left), "a save needed its memory");
  return true;
}

void EvaluatorQueue::Add(std::shared_ptr<const StagedSnapshot> snapshot) {
  if (!IsDue(snapshot->step())) return;
  const std::shared_ptr<const PendingSave> save = snapshot->pending_save();
  save->ExpectRow();
  try {
    AddDue(std::move(snapshot));
  } catch (...) {
    // With kQueue a saved step stays without a row, so that it is evaluated by the next process.
    if (options_.when_lagging != WhenLagging::kQueue || !save->persist()) Skip(*save, "the system has no memory");
  }
}

void EvaluatorQueue::AddDue(std::shared_ptr<const StagedSnapshot> snapshot) {
  auto pending = std::make_shared<Pending>();
  pending->save = snapshot->pending_save();
  std::list<std::shared_ptr<Pending>> replaced;
  std::string lagging;
  bool on_shelf = false;
  {
    absl::MutexLock lock(&mutex_);
    if (IsFull()) {
      if (options_.when_lagging == WhenLagging::kSkip) {
        const std::vector<int64_t> running = Running();
        lagging = fmt::format("lagging: step {} was still being evaluated",
                              running.empty() ? waiting_.front()->step() : running.front());
      } else if (options_.when_lagging == WhenLagging::kLatest) {
        replaced.swap(waiting_);
        done_.NotifyAll();
      } else if (options_.when_lagging == WhenLagging::kQueue) {
        on_shelf = snapshot->persist();
      }
    }
  }
  LeaveOut(std::move(replaced), "a newer snapshot took its place");
  if (!lagging.empty()) return Skip(*pending->save, lagging);
  if (on_shelf) return Queue(*snapshot, std::move(pending));
  pending->snapshot = std::move(snapshot);
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(pending));
}

void EvaluatorQueue::AddEarlier(EarlierStep earlier) {
  earlier.save->ExpectRow();
  if (options_.when_lagging != WhenLagging::kQueue) {
    return Skip(*earlier.save, earlier.reason);
  }
  auto pending = std::make_shared<Pending>();
  pending->save = std::move(earlier.save);
  pending->saved = absl::OkStatus();
  ClaimAndQueue(std::move(pending));
}

void EvaluatorQueue::Queue(const StagedSnapshot& snapshot, std::shared_ptr<Pending> pending) {
  // A waiting snapshot holds the pending save. A weak pointer in the other direction avoids a cycle.
  snapshot.committed()->Watch(
      [weak = weak_from_this(), waiting = std::weak_ptr<Pending>(pending)](const absl::Status& saved) {
        const std::shared_ptr<EvaluatorQueue> queue = weak.lock();
        const std::shared_ptr<Pending> pending = waiting.lock();
        if (queue == nullptr || pending == nullptr) return;
        absl::MutexLock lock(&queue->mutex_);
        pending->saved = saved;
      });
  ClaimAndQueue(std::move(pending));
}

void EvaluatorQueue::ClaimAndQueue(std::shared_ptr<Pending> pending) {
  std::list<std::shared_ptr<Pending>> added;  // first, so that what is claimed is queued
  added.push_back(std::move(pending));
  {
    absl::ReaderMutexLock lock(&host_mutex_);
    if (host_) host_->shelf->Claim(added.front()->step(), who_);
  }
  absl::MutexLock lock(&mutex_);
  waiting_.splice(waiting_.end(), added);
}

bool EvaluatorQueue::DrainUntil(const Deadline& deadline, std::vector<std::string>* still_running) const {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return waiting_.empty() && RunningCount() == 0; };
  if (done_.Await(&mutex_, idle, deadline)) return true;
  for (int64_t step : Running()) still_running->push_back(fmt::format("{} at step {}", who_, step));
  if (!waiting_.empty()) {
    still_running->push_back(
        fmt::format("{}, which has not read {} steps from {} on", who_, waiting_.size(), waiting_.front()->step()));
  }
  return false;
}

bool EvaluatorQueue::OnOwnThread() const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const std::thread& thread) { return thread.get_id() == std::this_thread::get_id(); });
}

void EvaluatorQueue::Stop() {
  std::list<std::shared_ptr<Pending>> left;
  std::vector<std::thread> ending;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    left.swap(waiting_);
    done_.NotifyAll();
    for (size_t i = 0; i < threads_.size(); ++i) {
      if (running_[i]) threads_[i].detach();
    }
    ending.swap(threads_);
  }
  // What the store has, or will have, another process can evaluate, which asks for steps without a row. A row would
  // tell it, and retention, that nothing more is to be said.
  if (options_.when_lagging == WhenLagging::kQueue) {
    for (const std::shared_ptr<Pending>& pending : left) {
      if (pending->snapshot == nullptr) ReleaseClaim(pending->step());
    }
    std::erase_if(left, [](const std::shared_ptr<Pending>& pending) { return pending->save->persist(); });
  }
  LeaveOut(std::move(left), "the checkpointer was closed");
  for (std::thread& thread : ending) {
    if (thread.joinable()) thread.join();
  }
  absl::MutexLock lock(&host_mutex_);
  host_.reset();
}

void EvaluatorQueue::Loop(size_t thread) {
  for (;;) {
    std::shared_ptr<Pending> pending;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || HasWork(); };
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      pending = std::move(waiting_.front());
      waiting_.pop_front();
      running_[thread] = pending->step();
    }
    EvaluateAndRelease(std::move(pending));
    absl::MutexLock lock(&mutex_);
    running_[thread].reset();
    done_.NotifyAll();
  }
}

void EvaluatorQueue::EvaluateAndRelease(std::shared_ptr<Pending> pending) {
  std::shared_ptr<StagingArena> arena;
  if (pending->snapshot != nullptr) arena = pending->snapshot->block().arena();
  std::shared_ptr<const PendingSave> save = pending->save;
  try {
    Evaluate(std::move(pending));
  } catch (...) {
    const absl::Status why = storage::ExceptionStatus("the evaluation");
    storage::BestEffort([&] { Report(*save, Row(Evaluation::Outcome::kFailed, std::string(why.message()))); });
  }
  save.reset();
  if (arena != nullptr) arena->NoteReleased();
}

// Reports the row before it releases the pending save and the memory. So when a save has ended, its row can be read.
void EvaluatorQueue::Evaluate(std::shared_ptr<Pending> pending) {
  const PendingSave& save = *pending->save;
  absl::StatusOr<std::shared_ptr<const Snapshot>> snapshot;
  if (pending->snapshot == nullptr) {
    snapshot = Guarded("the reading of the snapshot", [&] { return ReadFromShelf(*pending); });
    ReleaseClaim(save.step());
  } else {
    std::shared_ptr<const StagedSnapshot> staged = std::move(pending->snapshot);
    const std::shared_ptr<StagingArena> arena = staged->block().arena();
    if (absl::Status status = staged->progress()->WaitUntilEnded(); !status.ok()) {
      return Skip(save, fmt::format("it was not staged: {}", std::string(status.message())));
    }
    snapshot = Prepare(std::move(staged));
    arena->NoteReleased();  // if in half precision, where nothing of it is held any more
  }
  if (!snapshot.ok()) return Report(save, Row(Evaluation::Outcome::kFailed, std::string(snapshot.status().message())));
  Report(save, Ask(**snapshot));
}

// What is asked for of a snapshot; in memory of its own where that is converted, and then nobody here holds the
// snapshot any more.
absl::StatusOr<std::shared_ptr<const Snapshot>> EvaluatorQueue::Prepare(
    std::shared_ptr<const StagedSnapshot> staged) const {
  auto wanted = FilterSnapshot(std::move(staged), options_.entries);
  if (!wanted.ok() || options_.half_precision == HalfPrecision::kNone) return wanted;
  return ToHalfPrecision(**wanted, options_.half_precision);
}

absl::StatusOr<std::shared_ptr<const Snapshot>> EvaluatorQueue::ReadFromShelf(const Pending& pending) {
  if (!pending.saved->ok()) {
    return absl::Status(pending.saved->code(),
                        fmt::format("there is nothing to evaluate: {}", std::string(pending.saved->message())));
  }
  absl::StatusOr<SnapshotShelf::Reading> reading = absl::CancelledError("the checkpointer was closed");
  {
    absl::ReaderMutexLock lock(&host_mutex_);
    if (host_) reading = host_->shelf->Find(pending.step(), options_.entries, options_.half_precision);
  }
  if (!reading.ok()) return reading.status();
  absl::StatusOr<std::shared_ptr<const Snapshot>> snapshot = reading->read();
  if (storage::IsMissingOrDamaged(snapshot.status())) {
    absl::ReaderMutexLock lock(&host_mutex_);
    if (host_) host_->shelf->NoteDamage(pending.step(), reading->attempt);
  }
  return snapshot;
}

Evaluation EvaluatorQueue::Ask(const Snapshot& snapshot) const {
  Evaluation row;
  const auto start = std::chrono::steady_clock::now();
  try {
    absl::StatusOr<Verdict> verdict = function_(snapshot);
    absl::Status status = verdict.status();
    if (status.ok()) {
      row.evaluator = options_.name;
      row.metrics = std::move(verdict->metrics);
      row.unhealthy = std::move(verdict->unhealthy);
      status = storage::ValidateEvaluation(row);
    }
    if (!status.ok()) {
      // What cannot be recorded beside it takes nothing from the verdict.
      std::string unhealthy = std::move(row.unhealthy);
      row = Row(Evaluation::Outcome::kFailed, status.ToString());
      row.unhealthy = std::move(unhealthy);
    }
  } catch (const std::exception& error) {
    row = Row(Evaluation::Outcome::kFailed, fmt::format("it threw: {}", error.what()));
  } catch (...) {
    row = Row(Evaluation::Outcome::kFailed, "it threw something other than a std::exception");
  }
  row.took = absl::FromChrono(std::chrono::steady_clock::now() - start);
  return row;
}

void EvaluatorQueue::LeaveOut(std::list<std::shared_ptr<Pending>> left, std::string_view reason) {
  for (const std::shared_ptr<Pending>& pending : left) {
    Skip(*pending->save, reason);
    if (pending->snapshot == nullptr) ReleaseClaim(pending->step());
  }
}

void EvaluatorQueue::Skip(const PendingSave& save, std::string_view reason) {
  storage::BestEffort([&] { Report(save, Row(Evaluation::Outcome::kSkipped, reason)); });
}

void EvaluatorQueue::Report(const PendingSave& save, Evaluation row) {
  storage::BestEffort([&] {
    row.evaluator = options_.name;
    row.worker = "trainer";
    absl::ReaderMutexLock lock(&host_mutex_);
    if (!host_) return;
    row.reported = host_->now();
    host_->sink->Evaluated(save, std::move(row));
  });
}

void EvaluatorQueue::ReleaseClaim(int64_t step) {
  storage::BestEffort([&] {
    absl::ReaderMutexLock lock(&host_mutex_);
    if (host_) host_->shelf->Release(step, who_);
  });
}

}  // namespace tidemark
