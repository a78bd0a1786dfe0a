// What the tests of evaluators share: a function that waits for the test, a sink that remembers, a shelf of the test's
// making, and a trainer that saves to a stream.

#ifndef TIDEMARK_TESTS_SNAPSHOT_EVALUATOR_TESTING_H_
#define TIDEMARK_TESTS_SNAPSHOT_EVALUATOR_TESTING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "snapshot/consumers/snapshot_stream.h"
#include "snapshot/staging/stager.h"
#include "snapshot/stopwatch.h"

namespace tidemark {

// Thread-safe. An evaluator's function that notes each call and returns from it when the test lets it.
class Gate {
 public:
  absl::StatusOr<Verdict> operator()(const Snapshot& snapshot) {
    absl::MutexLock lock(&mutex_);
    seen_.push_back(snapshot.step());
    const size_t turn = seen_.size();
    const auto open = [this, turn]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return turn <= let_through_; };
    mutex_.Await(absl::Condition(&open));
    ++left_;
    return Verdict(Metrics{{"step", static_cast<double>(snapshot.step())}});
  }
  EvaluatorFunction function() {
    return [this](const Snapshot& snapshot) { return (*this)(snapshot); };
  }

  // The first `calls` calls may return.
  void LetThrough(size_t calls) {
    absl::MutexLock lock(&mutex_);
    let_through_ = calls;
  }
  // Blocks until so many calls have begun.
  void AwaitCalls(size_t calls) {
    absl::MutexLock lock(&mutex_);
    const auto begun = [this, calls]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return seen_.size() >= calls; };
    mutex_.Await(absl::Condition(&begun));
  }
  std::vector<int64_t> seen() const {
    absl::MutexLock lock(&mutex_);
    return seen_;
  }
  size_t left() const {
    absl::MutexLock lock(&mutex_);
    return left_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<int64_t> seen_ ABSL_GUARDED_BY(mutex_);
  size_t let_through_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
};

class RecordingSink final : public EvaluationSink {
 public:
  void Evaluated(const PendingSave& save, Evaluation evaluation) override {
    absl::MutexLock lock(&mutex_);
    rows_.emplace_back(save.step(), std::move(evaluation));
  }
  // Blocks until there are so many.
  void AwaitRows(size_t rows) {
    absl::MutexLock lock(&mutex_);
    const auto there = [this, rows]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return rows_.size() >= rows; };
    mutex_.Await(absl::Condition(&there));
  }
  std::vector<std::pair<int64_t, Evaluation>> rows() const {
    absl::MutexLock lock(&mutex_);
    return rows_;
  }
  // "2 skipped: why", in the order in which they came.
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const auto& [step, row] : rows()) {
      lines.push_back(
          fmt::format("{} {}{}{}", step, OutcomeName(row.outcome), row.reason.empty() ? "" : ": ", row.reason));
    }
    return lines;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::pair<int64_t, Evaluation>> rows_ ABSL_GUARDED_BY(mutex_);
};

// Finds what the test says, and counts claims.
class TestShelf final : public SnapshotShelf {
 public:
  using Finder = std::function<absl::StatusOr<Reading>(int64_t, std::vector<std::string>, HalfPrecision)>;
  explicit TestShelf(Finder find = nullptr) : find_(std::move(find)) {}

  void Claim(int64_t step, std::string_view who) override {
    absl::MutexLock lock(&mutex_);
    claims_.insert({step, std::string(who)});
  }
  void Release(int64_t step, std::string_view who) override {
    absl::MutexLock lock(&mutex_);
    const auto found = claims_.find({step, std::string(who)});
    ASSERT_NE(found, claims_.end()) << step;
    claims_.erase(found);
  }
  absl::StatusOr<Reading> Find(int64_t step, std::vector<std::string> patterns, HalfPrecision half) override {
    {
      absl::MutexLock lock(&mutex_);
      EXPECT_TRUE(claims_.contains({step, "evaluator 'e'"})) << step;
    }
    if (find_ == nullptr) return absl::NotFoundError(fmt::format("step {} is not committed", step));
    return find_(step, std::move(patterns), half);
  }
  void NoteDamage(int64_t /*step*/, const std::string& /*attempt*/) override { ++damage_; }
  int damage() const { return damage_; }

  std::vector<int64_t> claimed() const {
    absl::MutexLock lock(&mutex_);
    std::vector<int64_t> steps;
    for (const auto& [step, who] : claims_) steps.push_back(step);
    return steps;
  }

 private:
  std::atomic<int> damage_ = 0;
  const Finder find_;
  mutable absl::Mutex mutex_;
  std::multiset<std::pair<int64_t, std::string>> claims_ ABSL_GUARDED_BY(mutex_);
};

// One tensor of half a page, so that every snapshot takes a page of staging memory.
inline constexpr uint64_t kSnapshotBytes = 4096;

// Saves as AsyncCheckpointer does, without a persister: the test says what becomes of each save.
class StreamTrainer {
 public:
  StreamTrainer(SnapshotStream& stream, int snapshots_max, WhenFull when_full = WhenFull::kFail)
      : stream_(stream),
        stager_({.staging_bytes_max = static_cast<uint64_t>(snapshots_max) * kSnapshotBytes, .when_full = when_full}),
        weight_(512) {
    state_.AddTensor("weight", Dtype::kFloat32, {512}, weight_.data());
    state_.AddValue("step", &step_);
    stager_.set_make_room([this](int64_t step) { return stream_.MakeRoom(step); });
  }

  // Comes as far as a save that is not published: waits for evaluators, takes memory, and gives it back.
  bool FindsRoom(int64_t step) {
    stream_.AwaitEvaluators(step, /*persist=*/true);
    auto begun = stager_.Begin(step, state_, {}, absl::UnixEpoch());
    EXPECT_TRUE(begun.ok()) << begun.status();
    return begun.ok() && *begun != nullptr;
  }

  // What the weights are at a step.
  static float Weight(int64_t step, size_t i) { return static_cast<float>(step) + static_cast<float>(i) / 512; }

  // Fails the test where there is no room.
  void Save(int64_t step, bool persist = true, const absl::Status& staged = absl::OkStatus()) {
    for (size_t i = 0; i < weight_.size(); ++i) weight_[i] = Weight(step, i);
    step_ = step;
    const Stopwatch waited;
    stream_.AwaitEvaluators(step, persist);
    waited_ = waited.elapsed();
    auto begun = stager_.Begin(step, state_, {.persist = persist}, absl::UnixEpoch());
    ASSERT_TRUE(begun.ok()) << begun.status();
    ASSERT_NE(*begun, nullptr) << "no room for step " << step;
    std::shared_ptr<StagedSnapshot> snapshot = *std::move(begun);
    saves_[step] = snapshot->committed();
    stream_.Publish(snapshot);
    const absl::Status copied = stager_.CopyTensors(state_, *snapshot);
    ASSERT_TRUE(copied.ok()) << copied;
    const std::shared_ptr<StagingProgress> progress = snapshot->progress();
    snapshot.reset();
    progress->End(staged);
  }

  // The save of the step ends so.
  void Settle(int64_t step, const absl::Status& status) { saves_.at(step)->Set(status); }
  Future committed(int64_t step) const { return saves_.at(step)->future(); }

  // Snapshots that are held.
  uint64_t snapshots_held() const { return stager_.arena().bytes_in_use() / kSnapshotBytes; }
  absl::Duration waited() const { return waited_; }
  State& state() { return state_; }

 private:
  SnapshotStream& stream_;
  Stager stager_;
  State state_;
  std::vector<float> weight_;
  int64_t step_ = 0;
  absl::Duration waited_;
  std::map<int64_t, std::shared_ptr<Promise>> saves_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_EVALUATOR_TESTING_H_
