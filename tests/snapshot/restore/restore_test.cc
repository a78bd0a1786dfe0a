// Restoring from stores that are damaged, or do not fit.

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <span>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/repair/repair.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class RestoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto checkpointer = Open();
    for (int64_t step : {10, 20, 30}) {
      trainer_.SetTo(step);
      auto save = checkpointer->Save(step, trainer_.state);
      ASSERT_THAT(save, IsOk());
    }
    ASSERT_THAT(checkpointer->Close(), IsOk());
    trainer_.SetTo(1000);
  }

  std::unique_ptr<AsyncCheckpointer> Open() {
    auto checkpointer =
        AsyncCheckpointer::Open({.directory = store_, .observer = ObserverOf({.warning = [this](std::string_view line) {
                                                        std::lock_guard lock(mutex_);
                                                        warnings_ += std::string(line) + "\n";
                                                      }})});
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }

  TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  TestTrainer trainer_;
  std::mutex mutex_;
  std::string warnings_;
};

// Which may have no memory at all.
TEST_F(RestoreTest, TakesTensorsWithoutElements) {
  std::vector<float> weights = {1, 2, 3};
  const auto add = [&](State& state) {
    state.AddTensor("empty", Dtype::kFloat32, {0, 4}, nullptr);
    state.AddTensor("weights", Dtype::kFloat32, {3}, weights.data());
  };
  const std::string store = directory_ / "empty";
  auto checkpointer = AsyncCheckpointer::Open({.directory = store});
  ASSERT_THAT(checkpointer, IsOk());
  State saved;
  add(saved);
  auto save = (*checkpointer)->Save(1, saved);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  weights = {0, 0, 0};
  State restored;
  add(restored);
  ASSERT_THAT((*checkpointer)->RestoreLatest(restored), IsOk());
  EXPECT_EQ(weights, (std::vector<float>{1, 2, 3}));
}

TEST_F(RestoreTest, FallsBackPastADamagedStepAndSaysWhy) {
  FlipBit(ShardPath(store_, 30), 100'000);
  auto checkpointer = Open();
  auto report = checkpointer->RestoreLatest(trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 20);
  EXPECT_TRUE(trainer_.IsAt(20));
  ASSERT_EQ(report->passed_over.size(), 1u);
  EXPECT_EQ(report->passed_over[0].first, 30);
  EXPECT_THAT(report->passed_over[0].second, AllOf(HasSubstr("model.weight"), HasSubstr("shard-00000-of-00001.tmk")));
  EXPECT_THAT(warnings_, HasSubstr("step 30 is damaged"));
  EXPECT_EQ(checkpointer->Steps()->back().state, StepState::kDamaged);
  // The mark lasts, and names the reason at once.
  checkpointer.reset();
  checkpointer = Open();
  EXPECT_THAT(checkpointer->Restore(30, trainer_.state),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step 30 is damaged")));
}

TEST_F(RestoreTest, FallsBackWhicheverBitOfAVersionChanges) {
  const std::string shard = ShardPath(store_, 30);
  const uint64_t footer = std::filesystem::file_size(shard) - 4096;
  for (uint64_t block : {uint64_t{0}, footer}) {
    for (uint64_t byte = 8; byte < 12; ++byte) {
      SCOPED_TRACE(testing::Message() << "offset " << block + byte);
      FlipBit(shard, block + byte);
      auto report = Open()->RestoreLatest(trainer_.state);
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(report->step, 20);
      FlipBit(shard, block + byte);
      ASSERT_THAT(Open()->Restore(30, trainer_.state), IsOk()) << "sound again, and asked for by name";
    }
  }
}

// What the queue reads is damaged, and what is read again is not.
TEST_F(RestoreTest, TakesAStepOfWhichABitFlippedOnTheWay) {
  const std::string shard = ShardPath(store_, 30);
  storage::FailingFileSystem files(storage::PosixFileSystem());
  auto checkpointer =
      CheckpointerOnFileSystem::Open(files, {.directory = store_, .tuning = {.codec_threads = 1, .io_depth = 1}});
  ASSERT_THAT(checkpointer, IsOk());
  std::atomic<int> flips = 0;
  files.SetGate([&](const std::string& operation, const std::string& path) {
    if (path != shard || (operation != "QueueRead" && operation != "ReadAt")) return;
    int expected = operation == "QueueRead" ? 0 : 1;
    if (flips.compare_exchange_strong(expected, expected + 1)) FlipBit(shard, 100'000);
  });
  auto report = (*checkpointer)->RestoreLatest(trainer_.state);
  files.SetGate(nullptr);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 30);
  EXPECT_TRUE(trainer_.IsAt(30));
  EXPECT_EQ(flips, 2) << "it was read again";
  EXPECT_EQ((*checkpointer)->Steps()->back().state, StepState::kCommitted);
}

TEST_F(RestoreTest, TakesAMarkBackOnlyIfEveryByteVerifies) {
  const std::string shard = ShardPath(store_, 30);
  FlipBit(shard, 100'000);
  auto checkpointer = Open();
  EXPECT_THAT(checkpointer->Restore(30, trainer_.state),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("model.weight")));
  EXPECT_THAT(checkpointer->Restore(30, trainer_.state, {.only = {"epoch"}}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step 30 is damaged")));
  FlipBit(shard, 100'000);
  ASSERT_THAT(checkpointer->Restore(30, trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(30));
  EXPECT_EQ(checkpointer->RestoreLatest(trainer_.state)->step, 30);
}

TEST_F(RestoreTest, RefusesAnOlderStepThatCannotFillWhatADamagedOneHadBegun) {
  // Step 40 has an entry more than the older ones, and is damaged in another.
  std::vector<float> head(1000, 40.0F);
  trainer_.state.AddTensor("head", Dtype::kFloat32, {1000}, head.data());
  {
    auto checkpointer = Open();
    trainer_.SetTo(40);
    ASSERT_THAT(checkpointer->Save(40, trainer_.state)->committed().Wait(), IsOk());
  }
  FlipBit(ShardPath(store_, 40), 100'000);
  auto checkpointer = Open();
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state, {.allow_missing = true}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("step 30 was restored"), HasSubstr("hold parts of a newer, damaged step"),
                             HasSubstr("head"))));
  // By now the damage is known, and nothing is begun that cannot be finished.
  auto report = checkpointer->RestoreLatest(trainer_.state, {.allow_missing = true});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 30);
  EXPECT_THAT(report->missing, ElementsAre("head"));
}

TEST_F(RestoreTest, NeverClaimsThatNothingWasTouchedOnceSomethingWas) {
  TestTrainer grown;
  std::vector<float> head(1000);
  grown.state.AddTensor("head", Dtype::kFloat32, {1000}, head.data());
  grown.SetTo(40);
  ASSERT_THAT(Open()->Save(40, grown.state), IsOk());
  FlipBit(ShardPath(store_, 40), 100'000);
  EXPECT_THAT(Open()->RestoreLatest(grown.state),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("missing in the checkpoint: 'head'"), HasSubstr("hold parts"))));
}

TEST_F(RestoreTest, RefusesPatternsThatMatchNothing) {
  EXPECT_THAT(Open()->RestoreLatest(trainer_.state, {.only = {"modle.*"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'modle.*' matches no entry")));
}

TEST_F(RestoreTest, AsksThePredicateBeforeItCountsDamage) {
  FlipBit(ShardPath(store_, 30), 100'000);
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state, {.accept = [](const StepInfo&) { return false; }}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not accepted")));
}

TEST_F(RestoreTest, EndsWithWhatThePredicateThrows) {
  auto opened = AsyncCheckpointer::Open({.directory = store_, .retention = {.max_to_keep = 3}});
  ASSERT_THAT(opened, IsOk());
  AsyncCheckpointer& checkpointer = **opened;
  const RestoreOptions throwing{.accept = [](const StepInfo&) -> bool { throw std::runtime_error("no such run"); }};
  const auto threw = StatusIs(absl::StatusCode::kInternal, "RestoreOptions::accept threw: no such run");
  EXPECT_THAT(checkpointer.RestoreLatest(trainer_.state, throwing), threw);
  EXPECT_THAT(checkpointer.Restore(20, trainer_.state, throwing), threw);
  EXPECT_TRUE(trainer_.IsAt(1000)) << "touched";
  // Retention, which restores pause, goes on.
  ASSERT_THAT(checkpointer.Save(40, trainer_.state)->committed().Wait(), IsOk());
  ASSERT_THAT(checkpointer.Tidy(), IsOk());
  EXPECT_EQ(ShardPath(store_, 10), "") << "deleted";
}

TEST_F(RestoreTest, SaysWhatADamagedStepHasLeftWhereThePredicateThrows) {
  FlipBit(ShardPath(store_, 30), 100'000);
  EXPECT_THAT(Open()->RestoreLatest(trainer_.state, {.accept = [](const StepInfo& info) -> bool {
                                      if (info.step == 30) return true;
                                      throw std::runtime_error("no such run");
                                    }}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("accept threw: no such run"), HasSubstr("hold parts of a newer, damaged step"),
                             HasSubstr("model.weight"))));
}

TEST_F(RestoreTest, TellsHowFarItIs) {
  std::vector<RestoreProgress> told;
  RestoreOptions options{.progress = [&](const RestoreProgress& progress) { told.push_back(progress); }};
  auto checkpointer = Open();
  const auto report = checkpointer->RestoreLatest(trainer_.state, options);
  ASSERT_THAT(report, IsOk());
  ASSERT_FALSE(told.empty());
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].step, 30);
    EXPECT_GT(told[i].bytes_done, i == 0 ? 0 : told[i - 1].bytes_done);
    EXPECT_EQ(told[i].bytes_total, told.back().bytes_done);
  }
  EXPECT_LE(told.back().bytes_done, report->bytes) << "which has the values, too";
  EXPECT_GT(told.back().bytes_done, report->bytes / 2);
  // A damaged step begins, and the one before follows.
  told.clear();
  checkpointer.reset();
  FlipBit(ShardPath(store_, 30), 100'000);
  checkpointer = Open();
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state, options), IsOk());
  EXPECT_EQ(told.back().step, 20);
  EXPECT_EQ(told.back().bytes_done, told.back().bytes_total);
}

TEST_F(RestoreTest, EndsWithWhatTheProgressThrowsAndTakesNoOlderStep) {
  auto checkpointer = Open();
  int calls = 0;
  const RestoreOptions throwing{.progress = [&](const RestoreProgress&) {
    ++calls;
    throw std::runtime_error("stop pressed");
  }};
  const auto threw = StatusIs(absl::StatusCode::kInternal, HasSubstr("RestoreOptions::progress threw: stop pressed"));
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state, throwing), threw);
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(checkpointer->Restore(20, trainer_.state, throwing), threw);
  // Nothing is known against the steps.
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(30));
}

TEST_F(RestoreTest, LetsADamagedStepBeSavedAgain) {
  FlipBit(ShardPath(store_, 30), 100'000);
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  trainer_.SetTo(30);
  auto save = checkpointer->Save(30, trainer_.state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  trainer_.SetTo(0);
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(30));
}

TEST_F(RestoreTest, FallsBackPastAStepWhoseFilesAreGone) {
  std::filesystem::remove_all(std::filesystem::path(ShardPath(store_, 30)).parent_path());
  auto checkpointer = Open();
  auto report = checkpointer->RestoreLatest(trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 20);
  EXPECT_THAT(warnings_, HasSubstr("step 30 is lost"));
  EXPECT_EQ(checkpointer->Steps()->back().state, StepState::kLost);
  EXPECT_THAT(report->passed_over[0].second, HasSubstr("steps/0000000030-"));
  EXPECT_THAT(report->passed_over[0].second, HasSubstr("ENOENT"));
}

TEST_F(RestoreTest, FallsBackPastAShardThatIsGoneOrCutShort) {
  std::filesystem::remove(ShardPath(store_, 30));
  std::filesystem::resize_file(ShardPath(store_, 20), 8192);
  auto checkpointer = Open();
  auto report = checkpointer->RestoreLatest(trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 10);
  EXPECT_TRUE(trainer_.IsAt(10));
  EXPECT_EQ(report->passed_over.size(), 2u);
}

TEST_F(RestoreTest, RefusesAShardThatWasPutInAnothersPlace) {
  std::filesystem::copy_file(ShardPath(store_, 20), ShardPath(store_, 30),
                             std::filesystem::copy_options::overwrite_existing);
  auto report = Open()->RestoreLatest(trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 20);
  EXPECT_THAT(report->passed_over[0].second, HasSubstr("its header is that of step 20"));
}

TEST_F(RestoreTest, SaysWhyNothingIsLeft) {
  for (int64_t step : {10, 20, 30}) FlipBit(ShardPath(store_, step), 100'000);
  EXPECT_THAT(Open()->RestoreLatest(trainer_.state),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("no step of"), HasSubstr("step 30"),
                                                          HasSubstr("step 20"), HasSubstr("step 10"))));
  EXPECT_EQ(trainer_.epoch, 1000) << "values change only when a restore succeeds";
}

// kNotFound would be a fresh run.
TEST_F(RestoreTest, StopsWhereARepairHasPutEveryStepAway) {
  for (int64_t step : {10, 20, 30}) FlipBit(ShardPath(store_, step), 100'000);
  const auto repaired = storage::RepairStore(storage::PosixFileSystem(), {.directory = store_});
  ASSERT_THAT(repaired, IsOk());
  EXPECT_EQ(repaired->lost.size(), 3u);
  EXPECT_THAT(Open()->RestoreLatest(trainer_.state),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("no step of"), HasSubstr("checkpoint-inspect --store " + store_ + " verify"),
                             HasSubstr("`repair`"), HasSubstr("step 30: lost: damaged, and moved to quarantine"),
                             HasSubstr("step 20: lost"), HasSubstr("step 10: lost"))));
  EXPECT_THAT(Open()->Restore(30, trainer_.state),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step 30 is lost: damaged, and moved to quarantine")));
}

TEST_F(RestoreTest, TouchesNothingWhenTheCheckpointDoesNotFit) {
  TestTrainer other(7);
  other.SetTo(5);
  int64_t extra = 3;
  other.state.AddValue("extra", &extra);
  auto checkpointer = Open();
  EXPECT_THAT(checkpointer->RestoreLatest(other.state),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("2 differences"),
                             HasSubstr("'model.weight': shape: checkpoint has [300000], state has [7]"),
                             HasSubstr("missing in the checkpoint: 'extra'"))));
  EXPECT_TRUE(other.IsAt(5));
  auto steps = checkpointer->Steps();
  ASSERT_THAT(steps, IsOk());
  for (const StepInfo& info : *steps) EXPECT_EQ(info.state, StepState::kCommitted);
}

TEST_F(RestoreTest, RestoresAPartByPatternAndLeavesTheRest) {
  auto checkpointer = Open();
  auto report = checkpointer->RestoreLatest(trainer_.state, {.only = {"model.*"}});
  ASSERT_THAT(report, IsOk());
  TestTrainer expected;
  expected.SetTo(30);
  EXPECT_EQ(trainer_.weight, expected.weight);
  EXPECT_EQ(trainer_.bias, expected.bias);
  EXPECT_EQ(trainer_.epoch, 1000);
  EXPECT_THAT(report->unexpected, ElementsAre("epoch", "note"));
  EXPECT_EQ(report->bytes, 300'000 * 4 + 17 * 8u);
}

TEST_F(RestoreTest, RestoresIntoAStateWithOtherNames) {
  std::vector<float> weight(300'000);
  State state;
  state.AddTensor("backbone.weight", Dtype::kFloat32, {300'000}, weight.data());
  auto report = Open()->RestoreLatest(state, {.renames = {{"model", "backbone"}}, .allow_unexpected = true});
  ASSERT_THAT(report, IsOk());
  TestTrainer expected;
  expected.SetTo(30);
  EXPECT_EQ(weight, expected.weight);
  EXPECT_THAT(report->unexpected, ElementsAre("backbone.bias", "epoch", "note"));
}

TEST_F(RestoreTest, RefusesAStepThatIsNotThere) {
  EXPECT_THAT(Open()->Restore(25, trainer_.state),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 25 is not committed")));
}

TEST_F(RestoreTest, NeverGivesWrongBytesWhateverByteOfTheShardChanges) {
  const auto seed = storage::SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 25; ++i) {
    const std::string shard = ShardPath(store_, 30);
    const uint64_t offset = random() % std::filesystem::file_size(shard);
    SCOPED_TRACE(testing::Message() << "offset " << offset);
    FlipBit(shard, offset);
    trainer_.SetTo(1000);
    auto checkpointer = Open();
    auto report = checkpointer->RestoreLatest(trainer_.state);
    ASSERT_THAT(report, IsOk());
    // A restore need not see a change in padding, which no tensor depends on; verify does.
    ASSERT_TRUE(trainer_.IsAt(report->step));
    trainer_.SetTo(30);
    ASSERT_THAT(checkpointer->Save(30, trainer_.state, {.overwrite = true})->committed().Wait(), IsOk());
  }
}

// Two numbers on a device that reads what it is given only when it is flushed.
class DeferringState final : public State {
 public:
  DeferringState() {
    SetDerivedEntries({Entry{.spec = {.name = "a", .dtype = Dtype::kInt32}, .bytes = 4},
                       Entry{.spec = {.name = "b", .dtype = Dtype::kInt32}, .bytes = 4}});
  }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    for (const CopyRequest& request : requests) std::memcpy(request.destination, &values[request.entry], 4);
    return absl::OkStatus();
  }
  absl::Status Receive(size_t entry, std::span<const std::byte> bytes) override {
    if (entry == 1 && !second_status.ok()) return second_status;
    received_.emplace_back(entry, bytes);
    return absl::OkStatus();
  }
  absl::Status FlushReceived() override {
    for (const auto& [entry, bytes] : received_) std::memcpy(&values[entry], bytes.data(), 4);
    received_.clear();
    return flush_status;
  }
  int32_t values[2] = {1, 2};
  absl::Status second_status;
  absl::Status flush_status;

 private:
  std::vector<std::pair<size_t, std::span<const std::byte>>> received_;
};

TEST_F(RestoreTest, BytesStayUntilTheStateHasReadThemAlsoAfterAFailure) {
  auto opened = AsyncCheckpointer::Open({.directory = directory_ / "deferring"});
  ASSERT_THAT(opened, IsOk());
  DeferringState state;
  auto save = (*opened)->Save(1, state);
  ASSERT_THAT(save, IsOk());
  state.values[0] = state.values[1] = 9;
  ASSERT_THAT((*opened)->RestoreLatest(state), IsOk());
  EXPECT_THAT(state.values, ElementsAre(1, 2));
  state.values[0] = state.values[1] = 9;
  state.second_status = absl::InternalError("the device is gone");
  EXPECT_THAT((*opened)->RestoreLatest(state), StatusIs(absl::StatusCode::kInternal, HasSubstr("the device is gone")));
  EXPECT_THAT(state.values, ElementsAre(1, 9));
  state.second_status = absl::OkStatus();
  state.flush_status = absl::InternalError("the device went late");
  EXPECT_THAT((*opened)->RestoreLatest(state),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the device went late")));
}

}  // namespace
}  // namespace tidemark
