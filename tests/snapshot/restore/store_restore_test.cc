// StoreReader's restores: beside a live trainer, without the right to write, and past damage.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

class StoreRestoreTest : public testing::Test {
 protected:
  void SetUp() override { Reopen({}); }

  // The trainer's checkpointer, which is open while the reader reads.
  void Reopen(RetentionOptions retention) {
    live_.reset();
    auto opened = AsyncCheckpointer::Open({.directory = store_, .retention = retention, .observer = NoWarnings()});
    ASSERT_THAT(opened, IsOk());
    live_ = *std::move(opened);
  }

  void Save(int64_t step, Metrics metrics = {}) {
    trainer_.SetTo(step);
    auto save = live_->Save(step, trainer_.state, {.metrics = std::move(metrics)});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  std::unique_ptr<StoreReader> NewReader() {
    auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    return *std::move(reader);
  }

  std::vector<std::string> Leases() {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(store_ + "/leases")) names.push_back(file.path());
    return names;
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  TestTrainer trainer_;
  TestTrainer reading_;
  std::unique_ptr<AsyncCheckpointer> live_;
};

TEST_F(StoreRestoreTest, RestoresBesideALiveTrainerWhatItHasCommittedMeanwhile) {
  Save(1);
  auto reader = NewReader();
  Save(2);
  auto report = reader->RestoreLatest(reading_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 2);
  EXPECT_TRUE(reading_.IsAt(2));
  ASSERT_THAT(reader->Restore(1, reading_.state), IsOk());
  EXPECT_TRUE(reading_.IsAt(1));
  EXPECT_THAT(Leases(), IsEmpty());
  EXPECT_THAT(live_->Close(), IsOk());
}

TEST_F(StoreRestoreTest, RestoresPartsAndRefusesWhatDoesNotFit) {
  Save(1);
  auto reader = NewReader();
  reading_.SetTo(1000);
  ASSERT_THAT(reader->RestoreLatest(reading_.state, {.only = {"epoch"}}), IsOk());
  EXPECT_EQ(reading_.epoch, 1);
  EXPECT_EQ(reading_.note, "after step 1000");
  TestTrainer wider(7);
  EXPECT_THAT(reader->RestoreLatest(wider.state), StatusIs(StatusCode::kInvalidArgument, HasSubstr("model.weight")));
}

// The state is asked between the looks at values and the reading of tensors.
class TidyingState final : public State {
 public:
  explicit TidyingState(std::function<void()> tidy) : tidy_(std::move(tidy)) {}
  absl::Status PrepareRestore(std::span<const EntrySpec> saved) override {
    tidy_();
    return State::PrepareRestore(saved);
  }

 private:
  const std::function<void()> tidy_;
};

TEST_F(StoreRestoreTest, ALeaseKeepsTheStepWhileItIsRead) {
  Reopen({.max_to_keep = 1});
  Save(1);
  auto reader = NewReader();
  std::vector<float> weight(300'000);
  TidyingState state([&] {
    EXPECT_EQ(Leases().size(), 1u);
    Save(2);
    EXPECT_THAT(live_->Tidy(), IsOk());
  });
  state.AddTensor("model.weight", Dtype::kFloat32, {300'000}, weight.data());
  ASSERT_THAT(reader->Restore(1, state, {.only = {"model.weight"}}), IsOk());
  EXPECT_EQ(live_->Steps()->front().state, StepState::kCommitted);
  EXPECT_THAT(live_->Steps()->front().kept, HasSubstr("leased by reading process"));
  TestTrainer expected;
  expected.SetTo(1);
  EXPECT_EQ(weight, expected.weight);
  EXPECT_THAT(Leases(), IsEmpty());
  ASSERT_THAT(live_->Tidy(), IsOk());
  EXPECT_EQ(live_->Steps()->front().state, StepState::kDeleted);
}

// Between the reader's last look and its lease.
TEST_F(StoreRestoreTest, PassesOverWhatWasDeletedSinceItLooked) {
  Reopen({.max_to_keep = 1});
  Save(1);
  auto reader = NewReader();
  Save(2);
  ASSERT_THAT(live_->Tidy(), IsOk());
  EXPECT_THAT(reader->Restore(1, reading_.state), StatusIs(StatusCode::kNotFound, HasSubstr("deleted")));
  EXPECT_THAT(reader->Load(1), StatusIs(StatusCode::kDataLoss, HasSubstr("deleted")));
  EXPECT_EQ(reader->RestoreLatest(reading_.state)->step, 2);
}

TEST_F(StoreRestoreTest, OpensAnotherStepIfTheSelectedOneWasDeletedSinceItLooked) {
  Reopen({.max_to_keep = 1});
  Save(1);
  auto by_selector = NewReader(), by_number = NewReader();
  Save(2);
  ASSERT_THAT(live_->Tidy(), IsOk());
  auto opened = by_selector->OpenSelected(StepSelector::Latest());
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ((*opened)->contents().info.step, 2);
  EXPECT_THAT(by_number->OpenSelected(1).status(), StatusIs(StatusCode::kNotFound, HasSubstr("step 1 was deleted: ")));
}

// The selected step stays, but its files do not.
TEST_F(StoreRestoreTest, DoesNotLookForAStepForEverWhoseFilesAreGone) {
  Save(1);
  auto reader = NewReader();
  for (const auto& attempt : std::filesystem::directory_iterator(store_ + "/steps")) {
    for (const auto& shard : std::filesystem::directory_iterator(attempt)) std::filesystem::remove(shard);
  }
  EXPECT_THAT(reader->OpenSelected(StepSelector::Latest()).status(),
              StatusIs(StatusCode::kNotFound, HasSubstr("it holds no shard")));
}

TEST_F(StoreRestoreTest, PassesOverDamageAndLeavesTheMarkToTheTrainer) {
  Save(1);
  Save(2);
  FlipBit(ShardPath(store_, 2), 100'000);
  auto reader = NewReader();
  auto report = reader->RestoreLatest(reading_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  EXPECT_TRUE(reading_.IsAt(1));
  EXPECT_THAT(report->passed_over, ElementsAre(Pair(2, HasSubstr("model.weight"))));
  EXPECT_THAT(reader->Restore(2, reading_.state), StatusIs(StatusCode::kDataLoss, HasSubstr("model.weight")));
  EXPECT_EQ(live_->Steps()->back().state, StepState::kCommitted) << "only the holder of a store marks damage";
  auto snapshot = reader->Load(StepSelector::Latest());
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ((*snapshot)->step(), 1);
  EXPECT_THAT(reader->Load(2), StatusIs(StatusCode::kDataLoss, HasSubstr("model.weight")));
  // A mark of the trainer's holds.
  EXPECT_EQ(live_->RestoreLatest(trainer_.state)->step, 1);
  EXPECT_THAT(reader->Restore(2, reading_.state), StatusIs(StatusCode::kDataLoss, HasSubstr("step 2 is damaged")));
}

TEST_F(StoreRestoreTest, TakesTheBestAndPastItsDamageTheNextBest) {
  Save(1, {{"loss", 0.5}});
  Save(2, {{"loss", 0.25}});
  Save(3, {{"loss", 0.75}});
  auto reader = NewReader();
  const StepSelector best = StepSelector::Best("loss");
  EXPECT_EQ(reader->Restore(best, reading_.state)->step, 2);
  EXPECT_EQ(reader->FindStep(best)->step, 2);
  FlipBit(ShardPath(store_, 2), 100'000);
  auto report = reader->Restore(best, reading_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  EXPECT_TRUE(reading_.IsAt(1));
  EXPECT_THAT(report->passed_over, ElementsAre(Pair(2, HasSubstr("model.weight"))));
  EXPECT_EQ((*reader->Load(best))->step(), 1);
  // The trainer's own restore does the same, and marks it.
  EXPECT_EQ(live_->Restore(best, trainer_.state)->step, 1);
  EXPECT_EQ((*live_->Steps())[1].state, StepState::kDamaged);
}

TEST_F(StoreRestoreTest, TakesHealthyAndTaggedSteps) {
  Save(1);
  Save(2);
  ASSERT_THAT(live_->ReportMetrics(1, "validation", {{"loss", 1}}).Wait(), IsOk());
  auto reader = NewReader();
  EXPECT_EQ(reader->Restore(StepSelector::LatestHealthy(), reading_.state)->step, 2);
  EXPECT_EQ(reader->Restore(StepSelector::Best("validation/loss"), reading_.state)->step, 1);
  EXPECT_THAT(reader->Restore(StepSelector::Tag("paper"), reading_.state),
              StatusIs(StatusCode::kNotFound, HasSubstr("tag 'paper'")));
  EXPECT_THAT(reader->Restore(5, reading_.state), StatusIs(StatusCode::kNotFound, HasSubstr("step 5")));
  EXPECT_THAT(reader->Load(5), StatusIs(StatusCode::kNotFound, HasSubstr("step 5")));
}

TEST_F(StoreRestoreTest, LoadsEntriesByPatternIntoMemoryOfTheirOwn) {
  Save(1, {{"loss", 0.5}});
  auto reader = NewReader();
  auto snapshot = reader->Load(StepSelector::Latest(), {"model.*"});
  ASSERT_THAT(snapshot, IsOk());
  reader.reset();
  ASSERT_THAT(live_->Close(), IsOk());
  std::filesystem::remove_all(store_);
  ASSERT_EQ((*snapshot)->entries().size(), 2u);
  EXPECT_EQ((*snapshot)->metrics().at("loss"), 0.5);
  TestTrainer expected;
  expected.SetTo(1);
  const auto bytes = (*snapshot)->bytes(*(*snapshot)->Find("model.weight"));
  EXPECT_EQ(std::memcmp(bytes.data(), expected.weight.data(), bytes.size()), 0);
}

TEST_F(StoreRestoreTest, RefusesAPatternThatMatchesNothing) {
  Save(1);
  EXPECT_THAT(NewReader()->Load(StepSelector::Latest(), {"modle.*"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("modle.*")));
}

// The trainer commits the next step and deletes the chosen one between the reader's look and its lease.
TEST_F(StoreRestoreTest, TakesTheNewerStepIfTheChosenOneIsDeletedMeanwhile) {
  for (const StepSelector& selector : {StepSelector::Latest(), StepSelector::Best("loss", BestMode::kLowest)}) {
    Reopen({.max_to_keep = 1});
    const int64_t next = live_->LatestStep().ok() ? live_->LatestStep()->step + 2 : 2;
    Save(next - 1, {{"loss", 2.0}});
    ASSERT_THAT(live_->Tidy(), IsOk());  // deletes the step before, which is better
    auto reader = NewReader();
    bool committed = false;
    const auto commit = [&](const StepInfo&) {
      if (std::exchange(committed, true)) return true;
      Save(next, {{"loss", 1.0}});
      EXPECT_THAT(live_->Tidy(), IsOk());
      return true;
    };
    auto report = reader->Restore(selector, reading_.state, {.accept = commit});
    ASSERT_THAT(report, IsOk()) << selector.ToString();
    EXPECT_EQ(report->step, next);
    EXPECT_TRUE(reading_.IsAt(next));
    EXPECT_THAT(report->passed_over, ElementsAre(Pair(next - 1, HasSubstr("deleted or replaced meanwhile"))));
  }
}

TEST_F(StoreRestoreTest, LoadsAStepWhateverTheTrainerDeletesMeanwhile) {
  Reopen({.max_to_keep = 1});
  Save(1);
  std::atomic<bool> done = false;
  std::thread trainer([&] {
    for (int64_t step = 2; !done; ++step) {
      Save(step);
      EXPECT_THAT(live_->Tidy(), IsOk());
    }
  });
  auto reader = NewReader();
  for (int i = 0; i < 30; ++i) EXPECT_THAT(reader->Load(StepSelector::Latest(), {"epoch"}), IsOk());
  done = true;
  trainer.join();
}

TEST_F(StoreRestoreTest, WorksWhereNoLeaseCanBeWritten) {
  Save(1);
  // As on a disk that is mounted read-only: no file can be made in leases/, whoever asks.
  std::filesystem::remove_all(store_ + "/leases");
  std::ofstream(store_ + "/leases") << "no folder";
  auto reader = NewReader();
  ASSERT_THAT(reader->RestoreLatest(reading_.state), IsOk());
  EXPECT_TRUE(reading_.IsAt(1));
  EXPECT_THAT(reader->Load(1, {"epoch"}), IsOk());
}

TEST_F(StoreRestoreTest, AStoreWithoutStepsIsNotFound) {
  auto reader = NewReader();
  EXPECT_THAT(reader->RestoreLatest(reading_.state), StatusIs(StatusCode::kNotFound, HasSubstr("no step to restore")));
  EXPECT_THAT(reader->Load(StepSelector::Latest()), StatusIs(StatusCode::kNotFound, HasSubstr("no step is committed")));
}

}  // namespace
}  // namespace tidemark
