// AsyncCheckpointer against a model: random sequences of operations, with evaluators in the same process, late metrics,
// workers' reports and reopenings. After every operation the store is compared with a plain list of steps, the model of
// retention_property_test.cc.
//
// Housekeeping may apply retention after each operation or only after several. So several models are kept until Tidy is
// called, and the store must agree with one of them.
//
// Longer than 500 lines: one class of random runs, whose operations share the store and its model.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/retention/retention_model.h"

namespace tidemark {
namespace {

using storage::BestOf;
using storage::IsOk;
using storage::Model;
using storage::ModelStep;
using storage::StatusIs;

constexpr int kSequences = storage::kAddressSanitizer || storage::kThreadSanitizer ? 10 : 40;
constexpr int kOperations = 20;
constexpr int64_t kStepMax = 24;
constexpr const char* kEvaluator = "validation";  // the one in this process

// What the evaluator is to say of steps, and when.
class Verdicts {
 public:
  struct Planned {
    Evaluation row;
    std::shared_ptr<absl::Notification> gate;  // null: at once
  };

  void Plan(int64_t step, Planned planned) {
    absl::MutexLock lock(&mutex_);
    planned_[step] = std::move(planned);
  }

  absl::StatusOr<Verdict> Say(int64_t step) {
    Planned planned;
    {
      absl::MutexLock lock(&mutex_);
      planned = planned_.at(step);
    }
    if (planned.gate != nullptr) planned.gate->WaitForNotification();
    if (planned.row.outcome == Evaluation::Outcome::kFailed) return absl::OutOfRangeError("no data");
    return Verdict(planned.row.metrics, planned.row.unhealthy);
  }

 private:
  absl::Mutex mutex_;
  std::map<int64_t, Planned> planned_ ABSL_GUARDED_BY(mutex_);
};

class RandomRun {
 public:
  explicit RandomRun(uint32_t seed) : random_(seed), directory_(storage::NewFolderInMemory("checkpointer")) { Open(); }
  ~RandomRun() {
    checkpointer_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Operate() {
    switch (Draw(0, 11)) {
      case 0:
      case 1:
      case 2:
        return Save();
      case 3:
        return SaveBehindAnEvaluation();
      case 4:
        return SaveTwo();
      case 5:
      case 6:
        return Report();
      case 7:
      case 8:
        return Deliver();
      case 9:
      case 10:
        return PinOrUnpin();
      default:
        return Reopen();
    }
  }

 private:
  using Event = std::function<void(Model&)>;

  int64_t Draw(int64_t from, int64_t to) { return storage::RandomNumber(random_, from, to); }

  void Open() {
    rules_ = storage::RandomRules(random_);
    evaluate_every_ = Draw(1, 3);
    when_lagging_ = std::array{WhenLagging::kBlock, WhenLagging::kSkip, WhenLagging::kLatest}[Draw(0, 2)];
    const auto now = [this] { return absl::UnixEpoch() + absl::Minutes(minute_.load()); };
    auto opened = CheckpointerOnFileSystem::OpenWithClock(
        now, {.directory = directory_ + "/store",
              .retention = rules_,
              .tuning = {.codec_threads = 1, .io = IoBackend::kThreads, .poll_interval = absl::InfiniteDuration()},
              .observer = ObserverOf({.warning = Warned})});
    ASSERT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
    ASSERT_THAT(checkpointer_->AddEvaluator(
                    {.name = kEvaluator, .when_lagging = when_lagging_, .every_steps = evaluate_every_},
                    [verdicts = verdicts_](const Snapshot& snapshot) { return verdicts->Say(snapshot.step()); }),
                IsOk());
  }

  static void Warned(std::string_view line) {
    if (line.starts_with("evaluator 'validation' failed at step ")) return;
    if (line.find("made anew") != std::string_view::npos) return;
    if (line.starts_with("the journal cannot be read any further")) return;
    ADD_FAILURE() << line;
  }

  // What a pass does, as of before any of it goes.
  void Pass(Model& model) const {
    if (!rules_.any()) return;
    std::set<int64_t> unwanted;
    for (const auto& [number, step] : model) {
      if (!step.deleted && WhyWanted(model, step, rules_).empty()) unwanted.insert(number);
    }
    for (const int64_t number : unwanted) model[number].deleted = true;
  }

  static std::set<int64_t> CommittedOf(const Model& model) {
    std::set<int64_t> committed;
    for (const auto& [number, step] : model) {
      if (!step.deleted) committed.insert(number);
    }
    return committed;
  }

  // Models after these events, one after the other, with a pass after any of them or not.
  std::vector<Model> After(const std::vector<Event>& events) const {
    std::vector<Model> models = {model_};
    for (const Event& event : events) {
      std::map<std::set<int64_t>, Model> next;  // they differ in nothing else
      for (Model& model : models) {
        event(model);
        Model passed = model;
        Pass(passed);
        next.emplace(CommittedOf(passed), std::move(passed));
        next.emplace(CommittedOf(model), std::move(model));
      }
      models.clear();
      for (auto& [committed, model] : next) models.push_back(std::move(model));
    }
    return models;
  }

  // Has housekeeping come to an end after the events, in any of these orders.
  void Settle(const std::vector<std::vector<Event>>& orders) {
    ASSERT_THAT(checkpointer_->Tidy(), IsOk());
    std::vector<Model> models;
    for (const std::vector<Event>& events : orders) {
      for (Model& model : After(events)) {
        Pass(model);
        models.push_back(std::move(model));
      }
    }
    auto steps = checkpointer_->Steps();
    ASSERT_THAT(steps, IsOk());
    std::set<int64_t> committed;
    for (const StepInfo& info : *steps) {
      if (info.state == StepState::kCommitted) committed.insert(info.step);
    }
    std::vector<std::set<int64_t>> possible;
    bool found = false;  // the model with these rows, too; else any with these steps, whose rows CheckSteps compares
    for (Model& model : models) {
      possible.push_back(CommittedOf(model));
      if (possible.back() != committed) continue;
      const bool has_rows = HasRowsOf(model, *steps);
      if (!found) model_ = std::move(model);
      found = found || has_rows;
    }
    ASSERT_THAT(possible, testing::Contains(committed));
    CheckSteps(*steps);
    CheckBest();
  }

  // `asked`: whether the evaluator in this process will give a row.
  Event Committed(int64_t number, const ModelStep& saved, bool asked) const {
    auto steps = checkpointer_->Steps();
    EXPECT_THAT(steps, IsOk());
    ModelStep step = saved;
    step.identity.step = number;
    step.unjudged = asked;
    for (const StepInfo& info : *steps) {
      if (info.step != number) continue;
      step.identity.sequence = info.sequence;
      step.identity.attempt.bytes = *storage::FromHex(info.attempt);
    }
    return [step](Model& model) {
      ModelStep& place = model[step.identity.step];
      const bool pinned = place.pinned;  // a pin is the step's, and not the attempt's
      place = step;
      place.pinned = pinned;
    };
  }

  static Event Said(int64_t number, const Evaluation& row) {
    return [number, row](Model& model) {
      storage::Say(model.at(number), row);
      model.at(number).unjudged = false;
    };
  }

  bool IsCommitted(int64_t number) const {
    const auto step = model_.find(number);
    return step != model_.end() && !step->second.deleted;
  }

  std::optional<int64_t> DrawCommitted() {
    const std::set<int64_t> committed = CommittedOf(model_);
    if (committed.empty()) return std::nullopt;
    return *std::next(committed.begin(), Draw(0, static_cast<int64_t>(committed.size()) - 1));
  }

  Evaluation DrawRow(std::string evaluator) {
    Evaluation row{.evaluator = std::move(evaluator)};
    if (Draw(0, 4) > 0) row.metrics["accuracy"] = storage::RandomValue(random_);
    return row;
  }

  // What the evaluator in this process will say; nullopt: it is not asked.
  std::optional<Evaluation> PlanVerdict(int64_t number, std::shared_ptr<absl::Notification> gate) {
    Evaluation row = DrawRow(kEvaluator);
    if (Draw(0, 3) == 0) row.unhealthy = "diverged";
    if (Draw(0, 5) == 0) row = {.evaluator = kEvaluator, .outcome = Evaluation::Outcome::kFailed};
    verdicts_->Plan(number, {.row = row, .gate = std::move(gate)});
    return number % evaluate_every_ == 0 ? std::optional(row) : std::nullopt;
  }

  struct Started {
    ModelStep step;
    SaveHandle handle;
  };

  std::optional<Started> StartSave(int64_t number, bool overwrite) {
    minute_ += Draw(0, 9) == 0 ? Draw(-99, 99) : Draw(0, 3);
    Started started;
    started.step.created = absl::UnixEpoch() + absl::Minutes(minute_.load());
    if (Draw(0, 3) > 0) started.step.metrics["loss"] = storage::RandomValue(random_);
    trainer_.SetTo(number);
    auto save = checkpointer_->Save(number, trainer_.state, {.metrics = started.step.metrics, .overwrite = overwrite});
    if (!overwrite && IsCommitted(number) && model_.at(number).doubters.empty()) {
      EXPECT_THAT(save, StatusIs(absl::StatusCode::kAlreadyExists, testing::_));
      return std::nullopt;
    }
    EXPECT_THAT(save, IsOk());
    if (!save.ok()) return std::nullopt;
    started.handle = *std::move(save);
    return started;
  }

  // At any step, be it that training went back, or that there is one already, deleted or not.
  void Save() {
    const int64_t number = Draw(0, kStepMax);
    const auto row = PlanVerdict(number, nullptr);
    const auto started = StartSave(number, Draw(0, 2) > 0);
    if (!started) return;
    ASSERT_THAT(started->handle.committed().Wait(), IsOk());
    ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
    std::vector<Event> events = {Committed(number, started->step, row.has_value())};
    if (row) events.push_back(Said(number, *row));
    Settle({events});
  }

  // A pass comes between the commit and what the evaluator says.
  void SaveBehindAnEvaluation() {
    const int64_t number = Draw(0, kStepMax);
    const auto gate = std::make_shared<absl::Notification>();
    const auto row = PlanVerdict(number, gate);
    const auto started = StartSave(number, /*overwrite=*/true);
    if (!started) return;
    EXPECT_THAT(started->handle.committed().Wait(), IsOk());
    Settle({{Committed(number, started->step, row.has_value())}});
    gate->Notify();
    ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
    if (row) Settle({{Said(number, *row)}});
  }

  // The second may be committed before what the evaluator says of the first is recorded. An evaluator that drops
  // snapshots drops one only if it is still busy with the other, which is a matter of time.
  void SaveTwo() {
    const int64_t first = Draw(0, kStepMax - 1);
    const int64_t second = Draw(first + 1, kStepMax);
    const auto first_row = PlanVerdict(first, nullptr);
    const auto second_row = PlanVerdict(second, nullptr);
    const auto one = StartSave(first, /*overwrite=*/true);
    const auto two = StartSave(second, /*overwrite=*/true);
    if (!one || !two) return;
    ASSERT_THAT(checkpointer_->WaitUntilCommitted(), IsOk());
    ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
    const Event one_committed = Committed(first, one->step, first_row.has_value());
    const Event two_committed = Committed(second, two->step, second_row.has_value());
    std::vector<std::vector<Event>> orders;
    const auto add_orders = [&](const std::optional<Evaluation>& of_first, const std::optional<Evaluation>& of_second) {
      std::vector<Event> said_of_first;
      std::vector<Event> said_of_second;
      if (of_first) said_of_first.push_back(Said(first, *of_first));
      if (of_second) said_of_second.push_back(Said(second, *of_second));
      orders.push_back(Joined({{one_committed}, said_of_first, {two_committed}, said_of_second}));
      orders.push_back(Joined({{one_committed, two_committed}, said_of_first, said_of_second}));
      orders.push_back(Joined({{one_committed, two_committed}, said_of_second, said_of_first}));
    };
    add_orders(first_row, second_row);
    if (first_row && second_row) {
      const Evaluation skipped{.evaluator = kEvaluator, .outcome = Evaluation::Outcome::kSkipped};
      if (when_lagging_ == WhenLagging::kSkip) add_orders(first_row, skipped);
      if (when_lagging_ == WhenLagging::kLatest) add_orders(skipped, second_row);
    }
    Settle(orders);
  }

  static std::vector<Event> Joined(const std::vector<std::vector<Event>>& parts) {
    std::vector<Event> events;
    for (const std::vector<Event>& part : parts) events.insert(events.end(), part.begin(), part.end());
    return events;
  }

  // Late: the step may be gone by then, and keeps what is said of it all the same.
  void Report() {
    const int64_t number = Draw(0, kStepMax);
    const Evaluation row = DrawRow(Draw(0, 1) == 0 ? kEvaluator : "bench");
    const absl::Status status = checkpointer_->ReportMetrics(number, row.evaluator, row.metrics).Wait();
    if (!model_.contains(number)) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, testing::_));
      return;
    }
    ASSERT_THAT(status, IsOk());
    Settle({{Said(number, row)}});
  }

  // By a worker, which has found the step committed.
  void Deliver() {
    const auto number = DrawCommitted();
    if (!number) return;
    Evaluation row = DrawRow(Draw(0, 1) == 0 ? kEvaluator : "health");
    if (Draw(0, 1) == 0) row.unhealthy = "diverged";
    ASSERT_THAT(OtherProcess(directory_ + "/store").Report(*number, row), IsOk());
    Settle({{Said(*number, row)}});
  }

  void PinOrUnpin() {
    const auto committed = DrawCommitted();
    const int64_t number = committed && Draw(0, 3) > 0 ? *committed : Draw(0, kStepMax);
    const bool pin = Draw(0, 2) > 0;
    const absl::Status status = pin ? checkpointer_->Pin(number, "a good one") : checkpointer_->Unpin(number);
    if (IsCommitted(number)) {
      ASSERT_THAT(status, IsOk());
      Settle({{[number, pin](Model& model) { model.at(number).pinned = pin; }}});
    } else if (pin) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, testing::_));
    }
  }

  // With other rules, and now and then without the index, without the journal, or without both. One of the two knows
  // everything. Without both there is what is in the shards of the steps that are there.
  void Reopen() {
    ASSERT_THAT(checkpointer_->Close(), IsOk());
    checkpointer_.reset();
    const int64_t lost = Draw(0, 5);
    if (lost == 0) std::filesystem::remove_all(directory_ + "/store/index");
    if (lost == 1) std::filesystem::remove_all(directory_ + "/store/journal");
    if (lost == 2 && !HasFilesOfDeletedSteps()) {
      LoseJournalAndIndex(directory_ + "/store");
      ForgetAllButShards();
    }
    Open();
    if (checkpointer_ == nullptr) return;
    Settle({SaidOfEarlierSteps()});
  }

  // Which other steps refer to. Without journal and index such a step is there again.
  bool HasFilesOfDeletedSteps() const {
    for (const auto& folder : std::filesystem::directory_iterator(directory_ + "/store/steps")) {
      const auto step = model_.find(std::stoll(folder.path().filename().string()));
      if (step != model_.end() && step->second.deleted) return true;
    }
    return false;
  }

  void ForgetAllButShards() {
    std::erase_if(model_, [](const auto& step) { return step.second.deleted; });
    for (auto& [number, step] : model_) {
      std::erase_if(step.metrics, [](const auto& metric) { return absl::StrContains(metric.first, "/"); });
      step.evaluators.clear();
      step.answers.clear();
      step.finders.clear();
      step.doubters.clear();
      step.pinned = false;
    }
  }

  // What the evaluator has left unevaluated, be it that it was not there yet, is left out once it is added.
  std::vector<Event> SaidOfEarlierSteps() const {
    std::vector<Event> events;
    for (const AwaitEvaluation& rule : rules_.keep_unevaluated_until) {
      for (const int64_t number : CommittedOf(model_)) {
        if (number % rule.every_steps != 0 || number % evaluate_every_ != 0) continue;
        if (model_.at(number).evaluators.contains(kEvaluator)) continue;
        events.push_back(Said(number, {.evaluator = kEvaluator, .outcome = Evaluation::Outcome::kSkipped}));
      }
    }
    return events;
  }

  // Whether the model's evaluator in this process has said of each step what the record says, or was skipped there too.
  static bool HasRowsOf(const Model& model, const std::vector<StepInfo>& steps) {
    return std::all_of(steps.begin(), steps.end(), [&](const StepInfo& info) {
      const auto found = model.find(info.step);
      if (found == model.end()) return false;
      const ModelStep& step = found->second;
      const bool skipped = std::any_of(info.evaluations.begin(), info.evaluations.end(), [](const Evaluation& row) {
        return row.evaluator == kEvaluator && row.outcome == Evaluation::Outcome::kSkipped;
      });
      const bool skipped_in_model = step.answers.contains(kEvaluator) && !step.finders.contains(kEvaluator) &&
                                    !step.doubters.contains(kEvaluator);
      return skipped == skipped_in_model && info.unhealthy().empty() == step.doubters.empty() &&
             info.metrics.size() == step.metrics.size();
    });
  }

  void CheckSteps(const std::vector<StepInfo>& steps) const {
    ASSERT_EQ(steps.size(), model_.size());
    for (const StepInfo& info : steps) {
      SCOPED_TRACE(absl::StrCat("step ", info.step));
      ASSERT_TRUE(model_.contains(info.step));
      const ModelStep& step = model_.at(info.step);
      EXPECT_EQ(info.state, step.deleted ? StepState::kDeleted : StepState::kCommitted);
      EXPECT_EQ(info.pinned, step.pinned);
      EXPECT_EQ(info.unhealthy().empty(), step.doubters.empty());
      EXPECT_EQ(info.evaluations.size(), step.evaluators.size());
      EXPECT_THAT(info.metrics, testing::ElementsAreArray(Matching(step.metrics)));
      EXPECT_EQ(info.reason.empty(), !step.deleted);
      if (rules_.any() && !step.deleted) CheckReasons(info, step);
    }
  }

  static std::vector<testing::Matcher<std::pair<const std::string, double>>> Matching(const Metrics& metrics) {
    std::vector<testing::Matcher<std::pair<const std::string, double>>> matchers;
    for (const auto& [name, value] : metrics) {
      matchers.push_back(testing::Pair(name, testing::NanSensitiveDoubleEq(value)));
    }
    return matchers;
  }

  void CheckReasons(const StepInfo& info, const ModelStep& step) const {
    std::set<std::string> expected = WhyWanted(model_, step, rules_);
    // Of the latest step only that is said.
    if (expected.contains("latest")) {
      expected.erase("recent");
      expected.erase("healthy");
      expected.erase("next");
    }
    std::set<std::string> reasons;
    for (const absl::string_view reason : absl::StrSplit(info.kept, "; ", absl::SkipEmpty())) {
      reasons.insert(storage::RuleOf({reason.data(), reason.size()}));
    }
    EXPECT_EQ(reasons, expected) << info.kept;
  }

  void CheckBest() const {
    for (const char* metric : storage::kModelMetrics) {
      for (const BestMode mode : {BestMode::kLowest, BestMode::kHighest}) {
        SCOPED_TRACE(absl::StrCat(mode == BestMode::kLowest ? "lowest " : "highest ", metric));
        const auto expected = BestOf(model_, metric, mode);
        auto best = checkpointer_->BestStep(metric, mode);
        if (expected) {
          ASSERT_THAT(best, IsOk());
          EXPECT_EQ(best->step, *expected);
        } else {
          EXPECT_THAT(best, StatusIs(absl::StatusCode::kNotFound, testing::_));
        }
      }
    }
  }

  std::mt19937 random_;
  const std::string directory_;
  TestTrainer trainer_{16};
  std::atomic<int64_t> minute_{0};
  const std::shared_ptr<Verdicts> verdicts_ = std::make_shared<Verdicts>();
  RetentionOptions rules_;
  int64_t evaluate_every_ = 1;
  WhenLagging when_lagging_ = WhenLagging::kBlock;
  Model model_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

TEST(CheckpointerProperty, DoesWhatTheModelDoes) {
  const uint32_t first = storage::FirstSeed();
  for (int i = 0; i < kSequences; ++i) {
    const uint32_t seed = first + static_cast<uint32_t>(i);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomRun run(seed);
    for (int operation = 0; operation < kOperations && !testing::Test::HasFailure(); ++operation) {
      SCOPED_TRACE(absl::StrCat("operation ", operation));
      run.Operate();
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

}  // namespace
}  // namespace tidemark
