#include "snapshot/consumers/snapshot_stream.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "storage/io/exception_status.h"

namespace tidemark {

SnapshotStream::~SnapshotStream() {
  // First, for what waits to be read from the shelf would wait for consumers.
  StopEvaluators();
}

absl::Status SnapshotStream::AddConsumer(SnapshotConsumer* consumer) {
  auto executor = SerialExecutor::Create();
  if (!executor.ok()) return executor.status();
  auto subscription = std::make_unique<Subscription>();
  subscription->consumer = consumer;
  subscription->executor = *std::move(executor);
  subscriptions_.push_back(std::move(subscription));
  return absl::OkStatus();
}

absl::Status SnapshotStream::AddEvaluator(EvaluatorOptions options, EvaluatorFunction function, EvaluatorHost host,
                                          std::vector<EarlierStep> earlier) {
  if (absl::Status status = ValidateEvaluatorOptions(options); !status.ok()) return status;
  if (function == nullptr) {
    return absl::InvalidArgumentError(fmt::format("evaluator '{}' has no function", options.name));
  }
  if (std::any_of(evaluators_.begin(), evaluators_.end(),
                  [&](const auto& evaluator) { return evaluator->name() == options.name; })) {
    return absl::AlreadyExistsError(fmt::format("an evaluator '{}' already exists", options.name));
  }
  evaluators_.reserve(evaluators_.size() + 1);
  auto evaluator = EvaluatorQueue::Start(std::move(options), std::move(function), std::move(host));
  if (!evaluator.ok()) return evaluator.status();
  try {
    for (EarlierStep& step : earlier) (*evaluator)->AddEarlier(std::move(step));
  } catch (...) {
    (*evaluator)->Stop();
    throw;
  }
  evaluators_.push_back(*std::move(evaluator));
  return absl::OkStatus();
}

bool SnapshotStream::AwaitEvaluators(int64_t step, bool persist, const Deadline& deadline) {
  return std::all_of(evaluators_.begin(), evaluators_.end(),
                     [&](const auto& evaluator) { return evaluator->AwaitTurn(step, persist, deadline); });
}

bool SnapshotStream::MakeRoom(int64_t step) {
  struct Yieldable {
    std::shared_ptr<const StagedSnapshot> snapshot;
    int64_t holders = 0;
    bool stays = false;  // for somebody, when the step is published
  };
  std::vector<Yieldable> yieldable;
  for (const auto& evaluator : evaluators_) {
    for (auto& snapshot : evaluator->Yieldable()) {
      const auto found = std::find_if(yieldable.begin(), yieldable.end(),
                                      [&](const Yieldable& other) { return other.snapshot == snapshot; });
      Yieldable& one = found == yieldable.end() ? yieldable.emplace_back() : *found;
      one.snapshot = std::move(snapshot);
      ++one.holders;
      one.stays = one.stays || !evaluator->IsDue(step);
    }
  }
  std::sort(yieldable.begin(), yieldable.end(), [](const Yieldable& a, const Yieldable& b) {
    if (a.stays != b.stays) return b.stays;
    return a.snapshot->pending_save()->number() < b.snapshot->pending_save()->number();
  });
  for (const Yieldable& one : yieldable) {
    if (one.snapshot.use_count() > one.holders + 1) continue;  // the one more is this one
    bool yielded = false;
    for (const auto& evaluator : evaluators_) yielded = evaluator->Yield(*one.snapshot) || yielded;
    if (yielded) return true;
  }
  return false;
}

bool SnapshotStream::ConsumersAreIdle() const {
  return std::all_of(subscriptions_.begin(), subscriptions_.end(), [](const auto& subscription) {
    absl::MutexLock lock(&subscription->mutex);
    return subscription->steps.empty();
  });
}

void SnapshotStream::Give(Subscription& subscription, int64_t step, std::function<void()> give) {
  {
    absl::MutexLock lock(&subscription.mutex);
    subscription.steps.push_back(step);
  }
  try {
    subscription.executor->Add(std::move(give));
  } catch (...) {
    absl::MutexLock lock(&subscription.mutex);
    subscription.steps.pop_back();
    throw;
  }
}

void SnapshotStream::Taken(Subscription& subscription) {
  absl::MutexLock lock(&subscription.mutex);
  subscription.steps.pop_front();
}

void SnapshotStream::Publish(std::shared_ptr<const StagedSnapshot> snapshot) {
  for (const auto& owner : subscriptions_) {
    Give(*owner, snapshot->step(), [subscription = owner.get(), snapshot]() mutable {
      const std::shared_ptr<StagingArena> arena = snapshot->block().arena();
      storage::BestEffort([&] { subscription->consumer->Consume(std::move(snapshot)); });
      snapshot.reset();
      Taken(*subscription);
      arena->NoteReleased();  // last: the notified thread reads both
    });
  }
  for (const auto& evaluator : evaluators_) evaluator->Add(snapshot);
}

void SnapshotStream::PublishRefusal(int64_t step, absl::Time created, const absl::Status& why) {
  for (const auto& owner : subscriptions_) {
    Give(*owner, step, [subscription = owner.get(), step, created, why] {
      storage::BestEffort([&] { subscription->consumer->Refused(step, created, why); });
      Taken(*subscription);
    });
  }
}

void SnapshotStream::Drain() {
  for (const auto& subscription : subscriptions_) subscription->executor->Drain();
}

void SnapshotStream::DrainEvaluators() {
  for (const auto& evaluator : evaluators_) evaluator->DrainUntil(Deadline::Never(), nullptr);
}

bool SnapshotStream::DrainUntil(const Deadline& deadline, std::vector<std::string>* still_running, size_t* saves) {
  bool drained = true;
  const size_t named_before = still_running->size();
  for (const auto& subscription : subscriptions_) {
    if (subscription->executor->DrainUntil(deadline)) continue;
    drained = false;
    absl::MutexLock lock(&subscription->mutex);
    for (int64_t step : subscription->steps) still_running->push_back(fmt::format("the save of step {}", step));
  }
  if (saves != nullptr) *saves = still_running->size() - named_before;
  for (const auto& evaluator : evaluators_) drained = evaluator->DrainUntil(deadline, still_running) && drained;
  return drained;
}

bool SnapshotStream::OnOwnThread() const {
  return std::any_of(subscriptions_.begin(), subscriptions_.end(),
                     [](const auto& subscription) { return subscription->executor->OnOwnThread(); }) ||
         std::any_of(evaluators_.begin(), evaluators_.end(),
                     [](const auto& evaluator) { return evaluator->OnOwnThread(); });
}

void SnapshotStream::StopEvaluators() {
  for (const auto& evaluator : evaluators_) evaluator->Stop();
  evaluators_.clear();
}

}  // namespace tidemark
