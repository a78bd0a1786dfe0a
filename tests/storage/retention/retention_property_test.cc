// Retention against a model: random sequences of what a run does to a store, held after every pass against a plain list
// of steps that is kept beside it. The model is written to be obviously right, and shares no code with PlanRetention.
// make faults-long runs ten times as many sequences.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/kept_steps.h"
#include "storage/retention/retention.h"
#include "tests/storage/io/copy_in_use.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/records/step_record_json.h"
#include "tests/storage/retention/retention_model.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

constexpr int kSequences = kAddressSanitizer || kThreadSanitizer ? 15 : 100;
constexpr int kOperations = 30;
constexpr int64_t kStepMax = 30;
constexpr absl::Duration kExpiry = absl::Seconds(60);

struct ModelLease {
  ModelStep step;                  // as it was when the lease was taken
  std::unique_ptr<Lease> held;     // null: of another machine, or of a process that was killed
  LeaseNote note;                  // of another machine
  std::optional<absl::Time> seen;  // when the observer saw this note first
};

class RandomRun {
 public:
  explicit RandomRun(uint32_t seed) : random_(seed), directory_(NewFolderInMemory("retention")) { Open(); }
  ~RandomRun() {
    leases_.clear();
    retention_.reset();
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Step() {
    Act();
    if (!testing::Test::HasFailure()) CheckKept();
  }

  // With nothing left that protects what is not wanted, only the wanted is left.
  void Finish() {
    std::erase_if(leases_, [](const auto& lease) { return lease.second.held != nullptr; });
    Apply();
    now_ += kExpiry;
    Apply();
    CheckFiles(/*exactly=*/true);
  }

 private:
  void Act() {
    switch (Draw(0, 11)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Save();
      case 4:
        return Evaluate();
      case 5:
        return Pin();
      case 6:
        return TakeLease();
      case 7:
        return EndOrRenewLease();
      case 8:
        now_ += absl::Seconds(Draw(0, 40));
        return;
      case 9:
        return Draw(0, 2) == 0 ? Crash() : Reopen();
      default:
        return Apply();
    }
  }

  int64_t Draw(int64_t from, int64_t to) { return RandomNumber(random_, from, to); }

  void Open() {
    auto store = OpenStore(directory_, &warnings_, files_);
    EXPECT_THAT(store, IsOk());
    store_ = store.ok() ? *std::move(store) : nullptr;
    EXPECT_THAT(store_->SweepUncommitted(), IsOk());
    options_ = RandomRules(random_);
    retention_ = std::make_unique<Retention>(
        *store_, options_, [](std::string_view line) { ADD_FAILURE() << line; }, Observer(),
        /*changes_max=*/Draw(0, 1) == 0 ? 256 : static_cast<size_t>(Draw(1, 4)));
    for (auto& [name, lease] : leases_) lease.seen.reset();  // the new observer has seen none
  }

  LeaseObserver Observer() {
    return LeaseObserver(files_, store_->layout(), "here", [this] { return now_; });
  }

  // A committed step; null if there is none.
  ModelStep* DrawStep() {
    std::vector<ModelStep*> live;
    for (auto& [number, step] : model_) {
      if (!step.deleted) live.push_back(&step);
    }
    return live.empty() ? nullptr : live[static_cast<size_t>(Draw(0, static_cast<int64_t>(live.size()) - 1))];
  }

  // At any step, be it that training went back, or that there is one already, deleted or not.
  void Save() {
    ModelStep step;
    const int64_t number = Draw(0, kStepMax);
    // A pin is the step's, and not the attempt's.
    if (const auto there = model_.find(number); there != model_.end()) step.pinned = there->second.pinned;
    const ModelStep* base = Draw(0, 2) == 0 ? DrawStep() : nullptr;
    if (base != nullptr && !base->base && base->identity.step != number) {
      step.base = base->identity;
      step.value = base->value;
      step.identity = WriteReferringAttempt(*store_, number, base->identity);
    } else {
      step.value = Draw(0, 1'000'000);
      step.identity = WriteAttempt(*store_, number, step.value);
    }
    // A clock that jumps as it likes.
    step.created = absl::UnixEpoch() + absl::Minutes(number) + absl::Seconds(Draw(0, 9) == 0 ? Draw(-9999, 9999) : 0);
    if (Draw(0, 3) > 0) step.metrics["loss"] = RandomValue(random_);
    auto attempt = ReadAttempt(PosixFileSystem(), store_->layout(), store_->id(), {number, step.identity.attempt});
    ASSERT_THAT(attempt, IsOk());
    attempt->record.info.created = step.created;
    attempt->record.info.metrics = step.metrics;
    ASSERT_THAT(store_->CommitAttempt(attempt->record), IsOk());
    model_[number] = step;
    CheckFiles(/*exactly=*/false);
  }

  // Late: the step may be deleted by then.
  void Evaluate() {
    if (model_.empty()) return;
    auto place = model_.begin();
    std::advance(place, Draw(0, static_cast<int64_t>(model_.size()) - 1));
    ModelStep& step = place->second;
    Evaluation evaluation{.evaluator = Draw(0, 1) == 0 ? "validation" : "health"};
    if (evaluation.evaluator == "validation") evaluation.metrics["accuracy"] = RandomValue(random_);
    if (evaluation.evaluator == "health" && Draw(0, 1) == 0) evaluation.unhealthy = "diverged";
    ASSERT_THAT(RecordOwn(*store_, step.identity, evaluation), IsOk());
    Say(step, evaluation);
  }

  void Pin() {
    ModelStep* step = DrawStep();
    if (step == nullptr) return;
    step->pinned = !step->pinned;
    const int64_t number = step->identity.step;
    ASSERT_THAT(step->pinned ? store_->Pin(number, "a good one") : store_->Unpin(number), IsOk());
  }

  void TakeLease() {
    const ModelStep* step = DrawStep();
    if (step == nullptr) return;
    ModelLease lease;
    lease.step = *step;
    lease.note.step = step->identity.step;
    lease.note.attempt = step->identity.attempt;
    lease.note.evaluator = absl::StrCat("e", Draw(0, 2));
    lease.note.holder = "worker";
    lease.note.expiry = kExpiry;
    const std::string name = LeaseFileName(lease.note.attempt, lease.note.evaluator);
    if (leases_.contains(name)) return;
    if (Draw(0, 1) == 0) {
      auto held = Observer().Acquire(lease.note);
      ASSERT_THAT(held, IsOk());
      lease.held = *std::move(held);
    } else {
      lease.note.machine = Draw(0, 2) == 0 ? "here" : "elsewhere";  // of one that was killed, or of another machine
      WriteNote(name, lease.note);
    }
    leases_[name] = std::move(lease);
  }

  void WriteNote(const std::string& name, LeaseNote& note) {
    note.lease = RandomBytes16();
    std::filesystem::create_directories(store_->layout().leases());
    std::ofstream(store_->layout().leases() + "/" + name) << EncodeLeaseNote(note);
  }

  void EndOrRenewLease() {
    if (leases_.empty()) return;
    auto place = leases_.begin();
    std::advance(place, Draw(0, static_cast<int64_t>(leases_.size()) - 1));
    auto& [name, lease] = *place;
    const bool renew = Draw(0, 1) == 0;
    if (lease.held != nullptr && renew) {
      EXPECT_THAT(lease.held->Renew(), IsOk());
    } else if (lease.held != nullptr) {
      leases_.erase(place);
    } else if (lease.note.machine == "elsewhere") {
      if (renew) {
        ++lease.note.renewals;
        WriteNote(name, lease.note);
        lease.seen.reset();
      } else {
        std::filesystem::remove(store_->layout().leases() + "/" + name);
        leases_.erase(place);
      }
    }
  }

  // What the observer sees of leases, and which it takes for dead.
  void LookAtLeases() {
    for (auto place = leases_.begin(); place != leases_.end();) {
      ModelLease& lease = place->second;
      if (lease.held == nullptr && lease.note.machine == "elsewhere" && !lease.seen) lease.seen = now_;
      const bool alive = lease.held != nullptr || (lease.seen && now_ - *lease.seen < kExpiry);
      place = alive ? std::next(place) : leases_.erase(place);
    }
  }

  // What the rules and leases let go. As of before any of it goes.
  std::set<int64_t> Unwanted() const {
    std::set<int64_t> unwanted;
    if (!options_.any()) return unwanted;
    for (const auto& [number, step] : model_) {
      if (step.deleted || !WhyWanted(model_, step, options_).empty()) continue;
      bool leased = false;
      for (const auto& [name, lease] : leases_) leased |= lease.step.identity.attempt == step.identity.attempt;
      if (!leased) unwanted.insert(number);
    }
    return unwanted;
  }

  void Apply() {
    auto pending = store_->catalog().Deletions();
    ASSERT_THAT(pending, IsOk());
    if (options_.any() || !pending->empty()) LookAtLeases();
    const std::set<int64_t> unwanted = Unwanted();
    std::set<int64_t> gone;
    do {
      auto marked = retention_->Apply({});
      ASSERT_THAT(marked, IsOk());
      for (const RetentionDecision& decision : *marked) {
        gone.insert(decision.step);
        EXPECT_NE(decision.reason, "");
      }
    } while (retention_->unfinished());
    EXPECT_EQ(gone, unwanted);
    for (const int64_t number : unwanted) model_[number].deleted = true;
    CheckRecords(/*after_pass=*/options_.any());
    CheckFiles(/*exactly=*/true);
  }

  void Reopen() {
    retention_.reset();
    store_.reset();
    Open();
    CheckRecords(/*after_pass=*/false);
    CheckFiles(/*exactly=*/false);
  }

  // In the middle of a pass, at any of its calls, with a save under way: everything on disk stays as it is from there.
  void Crash() {
    // Processes on this machine die with it.
    std::erase_if(leases_, [](const auto& lease) { return lease.second.held != nullptr; });
    // The observer of this pass has seen none, nor will the next one remember what this one has.
    for (auto& [name, lease] : leases_) lease.seen.reset();
    if (options_.any()) LookAtLeases();
    const std::set<int64_t> unwanted = Unwanted();
    files_.FailFrom(static_cast<size_t>(Draw(0, 12)), absl::InternalError("crashed"));
    retention_ = std::make_unique<Retention>(
        *store_, options_, [](std::string_view) {}, Observer());
    retention_->Apply({}).status().IgnoreError();
    files_.Reset();
    for (auto& [name, lease] : leases_) lease.seen.reset();
    EXPECT_THAT(store_->BeginAttempt(Draw(0, kStepMax)), IsOk());
    const std::string image = directory_ + "-image";
    ASSERT_NO_FATAL_FAILURE(CopyInUse(directory_, image));
    retention_.reset();
    store_.reset();
    std::filesystem::remove_all(directory_);
    std::filesystem::rename(image, directory_);
    Open();
    // None, or the lowest ones: all of them, unless that is more than one entry of the journal has room for.
    std::set<int64_t> gone;
    for (auto& [number, step] : model_) {
      if (step.deleted) continue;
      step.deleted = StateOf(number) == StepState::kDeleted;
      if (step.deleted) gone.insert(number);
    }
    EXPECT_TRUE(gone.empty() || gone == unwanted || gone.size() > 10) << gone.size() << " of " << unwanted.size();
    EXPECT_TRUE(gone.size() <= unwanted.size() && std::equal(gone.begin(), gone.end(), unwanted.begin()));
    CheckRecords(/*after_pass=*/false);
    CheckFiles(/*exactly=*/false);
  }

  StepState StateOf(int64_t number) const {
    auto record = store_->catalog().Find(number);
    EXPECT_THAT(record, IsOk());
    return (*record)->info.state;
  }

  void CheckRecords(bool after_pass) const {
    for (const auto& [number, step] : model_) {
      auto record = store_->catalog().Find(number);
      ASSERT_THAT(record, IsOk());
      ASSERT_TRUE(record->has_value()) << number;
      const StepInfo& info = (*record)->info;
      EXPECT_EQ(info.state, step.deleted ? StepState::kDeleted : StepState::kCommitted) << number;
      EXPECT_EQ(info.metrics.size(), step.metrics.size()) << number;
      if (step.deleted) {
        EXPECT_NE(info.reason, "") << number;
      } else {
        EXPECT_FALSE(after_pass && info.kept.empty()) << number;
        EXPECT_EQ(ValueAt(*store_, number), step.value) << number;
      }
    }
    for (const char* metric : kModelMetrics) {
      for (const BestMode mode : {BestMode::kLowest, BestMode::kHighest}) CheckBest(metric, mode);
    }
  }

  // What retention plans from is what the records say.
  void CheckKept() const {
    const auto kept = store_->catalog().Committed();
    ASSERT_THAT(kept, IsOk());
    std::vector<std::string> said;
    for (const auto& info : *kept) said.push_back(EncodeStepRecord({.info = *info}));
    std::vector<std::string> recorded;
    ASSERT_THAT(store_->catalog().ForEach([&](const StepRecord& record) {
      if (record.info.state == StepState::kCommitted) {
        recorded.push_back(EncodeStepRecord({.info = *KeptStep(record.info)}));
      }
      return true;
    }),
                IsOk());
    EXPECT_EQ(said, recorded);
  }

  void CheckBest(const char* metric, BestMode mode) const {
    const std::optional<int64_t> best = BestOf(model_, metric, mode);
    auto found = store_->catalog().FindBest(metric, mode);
    ASSERT_THAT(found, IsOk());
    ASSERT_EQ(found->has_value(), best.has_value()) << metric;
    if (best) {
      EXPECT_EQ((*found)->info.step, *best) << metric;
    }
  }

  // No folder is missing that a step, another step's chunks or a reader needs; after a pass, none is there beside them.
  void CheckFiles(bool exactly) const {
    std::set<std::string> needed;
    const auto need = [&](const ModelStep& step) {
      needed.insert(StepFolderName(step.identity.step, step.identity.attempt));
      if (step.base) needed.insert(StepFolderName(step.base->step, step.base->attempt));
    };
    for (const auto& [number, step] : model_) {
      if (!step.deleted) need(step);
    }
    for (const auto& [name, lease] : leases_) {
      const bool dead = lease.held == nullptr && lease.note.machine == "here";
      if (!dead) need(lease.step);
    }
    std::set<std::string> there;
    for (const auto& entry : std::filesystem::directory_iterator(store_->layout().steps())) {
      if (std::filesystem::exists(entry.path() / ShardFileName(0, 1))) there.insert(entry.path().filename());
      EXPECT_FALSE(exactly && std::filesystem::is_empty(entry.path())) << entry.path();
    }
    for (const std::string& name : needed) EXPECT_TRUE(there.contains(name)) << name << " is missing";
    if (!exactly) return;
    for (const std::string& name : there) EXPECT_TRUE(needed.contains(name)) << name << " is left behind";
  }

  std::mt19937 random_;
  std::string directory_;
  std::string warnings_;
  FailingFileSystem files_{PosixFileSystem()};
  absl::Time now_ = absl::UnixEpoch();
  Model model_;
  std::map<std::string, ModelLease> leases_;  // by file name
  RetentionOptions options_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Retention> retention_;
};

TEST(RetentionProperty, DoesWhatTheModelDoes) {
  const uint32_t first = FirstSeed();
  for (int i = 0; i < (AllCasesAsked() ? 10 : 1) * kSequences; ++i) {
    const uint32_t seed = first + static_cast<uint32_t>(i);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomRun run(seed);
    for (int step = 0; step < kOperations && !testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE(absl::StrCat("operation ", step));
      run.Step();
    }
    if (!testing::Test::HasFailure()) run.Finish();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

}  // namespace
}  // namespace tidemark::storage
