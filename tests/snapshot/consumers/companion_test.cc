// Companions through a checkpointer: saved with the step, restored with it.

#include "tidemark/companion.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using testing::Not;

// Remembers which steps it has seen, and the first number of the model of the last.
class Witness final : public Companion {
 public:
  explicit Witness(std::string prefix) : prefix_(std::move(prefix)) {
    state_.AddValue(prefix_ + ".steps", &steps);
    state_.AddTensor(prefix_ + ".weight", Dtype::kFloat32, {1}, &weight);
  }
  const std::string& prefix() const override { return prefix_; }
  absl::Status Update(const Snapshot& snapshot) override {
    if (!failure.ok()) return failure;
    if (throws) throws();
    steps += std::to_string(snapshot.step()) + " ";
    std::memcpy(&weight, snapshot.bytes(*snapshot.Find("model.weight")).data(), sizeof(weight));
    return absl::OkStatus();
  }
  State& state() override { return state_; }
  void Reset() override {
    steps.clear();
    weight = 0;
  }

  std::string steps;
  float weight = 0;
  absl::Status failure;
  std::function<void()> throws;  // null: it does not

 private:
  const std::string prefix_;
  State state_;
};

class CompanionTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = store_;
    options.observer = ObserverOf({.warning = [this](std::string_view line) {
      std::lock_guard lock(mutex_);
      warnings_ += std::string(line) + "\n";
    }});
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }

  void Save(AsyncCheckpointer& checkpointer, int64_t step, SaveOptions options = {}) {
    trainer_.SetTo(step);
    auto save = checkpointer.Save(step, trainer_.state, std::move(options));
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  void Evaluate(AsyncCheckpointer& checkpointer, int64_t step) {
    trainer_.SetTo(step);
    auto evaluation = checkpointer.Evaluate(step, trainer_.state);
    ASSERT_THAT(evaluation, IsOk());
    ASSERT_THAT(evaluation->committed().Wait(), IsOk());
  }

  std::string Warnings() {
    std::lock_guard lock(mutex_);
    return warnings_;
  }

  TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  TestTrainer trainer_;
  std::mutex mutex_;
  std::string warnings_;
};

std::shared_ptr<Companion> Ema() { return *MakeAverage({.decay = 0.75}); }

// The average's bytes, entry by entry.
std::vector<std::string> Contents(Companion& companion) {
  EXPECT_THAT(companion.state().Refresh(), IsOk());
  std::vector<std::string> contents;
  for (const State::Entry& entry : companion.state().entries()) {
    contents.push_back(entry.spec.name + "=" + std::string(reinterpret_cast<const char*>(entry.host), entry.bytes));
  }
  std::sort(contents.begin(), contents.end());
  return contents;
}

TEST_F(CompanionTest, IsRestoredWithTheStepInEveryStagingMode) {
  for (const Staging staging : {Staging::kBlocking, Staging::kOverlapped, Staging::kOnDevice}) {
    auto witness = std::make_shared<Witness>("witness");
    {
      auto checkpointer = Open({.staging = staging});
      ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
      Save(*checkpointer, 1, {.overwrite = true});
      Save(*checkpointer, 2, {.overwrite = true});
      ASSERT_THAT(checkpointer->Close(), IsOk());
    }
    const float weight = witness->weight;
    EXPECT_EQ(weight, trainer_.weight[0]);
    witness->Reset();
    trainer_.SetTo(1000);
    auto checkpointer = Open();
    ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
    auto report = checkpointer->RestoreLatest(trainer_.state);
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(trainer_.IsAt(2));
    EXPECT_EQ(witness->steps, "1 2 ");
    EXPECT_EQ(witness->weight, weight);
    EXPECT_THAT(report->unexpected, IsEmpty());
    ASSERT_THAT(checkpointer->Restore(1, trainer_.state), IsOk());
    EXPECT_EQ(witness->steps, "1 ");
  }
  EXPECT_THAT(Warnings(), Not(HasSubstr("begins anew")));
}

TEST_F(CompanionTest, SeesSnapshotsThatAreNotToBeSaved) {
  auto witness = std::make_shared<Witness>("witness");
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  Evaluate(*checkpointer, 1);
  Save(*checkpointer, 2);
  EXPECT_EQ(witness->steps, "1 2 ");
  witness->failure = absl::InternalError("it is full");
  Evaluate(*checkpointer, 3);
  ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  EXPECT_THAT(Warnings(), HasSubstr("step 3 was not taken in: companion 'witness': it is full"));
}

TEST_F(CompanionTest, FailsTheSaveThatItCannotTakeIn) {
  auto witness = std::make_shared<Witness>("witness");
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  Save(*checkpointer, 1);
  witness->failure = absl::InternalError("it is full");
  trainer_.SetTo(2);
  auto save = checkpointer->Save(2, trainer_.state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(
      save->committed().Wait(),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("step 2 was not committed: companion 'witness': it is full")));
  EXPECT_THAT(Warnings(), Not(HasSubstr("written anew")));
  const auto steps = checkpointer->Steps();
  ASSERT_THAT(steps, IsOk());
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ(steps->back().state, StepState::kFailed);
  EXPECT_THAT(steps->back().reason, HasSubstr("it is full"));
  witness->failure = absl::OkStatus();
  Save(*checkpointer, 2);
  EXPECT_EQ(witness->steps, "1 2 ");
}

TEST_F(CompanionTest, FailsTheSaveInWhichItThrows) {
  auto witness = std::make_shared<Witness>("witness");
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  const auto save_fails = [&](int64_t step, const std::string& why) {
    auto save = checkpointer->Save(step, trainer_.state);
    ASSERT_THAT(save, IsOk());
    EXPECT_THAT(save->committed().Wait(), StatusIs(absl::StatusCode::kInternal, HasSubstr(why)));
  };
  witness->throws = [] { throw std::runtime_error("out of luck"); };
  save_fails(1, "step 1 was not committed: companion 'witness': Companion::Update threw: out of luck");
  Evaluate(*checkpointer, 2);
  ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  EXPECT_THAT(Warnings(),
              HasSubstr("step 2 was not taken in: companion 'witness': Companion::Update threw: out of luck"));
  witness->throws = [] { throw 3; };
  save_fails(3, "companion 'witness': Companion::Update threw something other than a std::exception");
  witness->throws = nullptr;
  Save(*checkpointer, 4);
  EXPECT_EQ(witness->steps, "4 ");
}

TEST_F(CompanionTest, RefusesEntriesOutsideThePrefix) {
  auto witness = std::make_shared<Witness>("witness");
  int64_t stray = 0;
  witness->state().AddValue("stray", &stray);
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  auto save = checkpointer->Save(1, trainer_.state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("its entry 'stray' is not under its prefix")));
}

TEST_F(CompanionTest, RefusesPrefixesThatAreTakenOrNone) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(std::make_shared<Witness>("witness")), IsOk());
  EXPECT_THAT(checkpointer->AddCompanion(std::make_shared<Witness>("witness")),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("a companion 'witness' already exists")));
  for (const char* prefix : {"", "a.b", "a*", "a\nb"}) {
    EXPECT_THAT(checkpointer->AddCompanion(std::make_shared<Witness>(prefix)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prefix of a companion: expected")));
  }
  EXPECT_THAT(checkpointer->AddCompanion(nullptr), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("null")));
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->AddCompanion(std::make_shared<Witness>("late")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

// The prefixes are a property of the step, which has a maximum length.
TEST_F(CompanionTest, RefusesMorePrefixesThanAStepHasRoomFor) {
  auto checkpointer = Open();
  absl::Status added;
  int count = 0;
  while (added.ok() && count < 1000) {
    added = checkpointer->AddCompanion(std::make_shared<Witness>(std::string(250, 'x') + std::to_string(1000 + count)));
    if (added.ok()) ++count;
  }
  EXPECT_THAT(added, StatusIs(absl::StatusCode::kInvalidArgument,
                              AllOf(HasSubstr("of the 258 companions"), HasSubstr("at most 65536 fit into a step"))));
  EXPECT_EQ(count, 257);
  ASSERT_THAT(checkpointer->Save(1, trainer_.state)->committed().Wait(), IsOk());
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
}

TEST_F(CompanionTest, LeavesWhatNobodyRestoresInTheReport) {
  {
    auto checkpointer = Open();
    ASSERT_THAT(checkpointer->AddCompanion(std::make_shared<Witness>("witness")), IsOk());
    Save(*checkpointer, 1);
  }
  auto report = Open()->RestoreLatest(trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->unexpected, ElementsAre("witness.steps", "witness.weight"));
}

TEST_F(CompanionTest, BeginsAnewWhereTheStepHasNothingOfIt) {
  auto witness = std::make_shared<Witness>("witness");
  auto checkpointer = Open();
  Save(*checkpointer, 1);
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  Save(*checkpointer, 2);
  ASSERT_THAT(checkpointer->Restore(1, trainer_.state), IsOk());
  EXPECT_EQ(witness->steps, "");
  EXPECT_THAT(Warnings(), HasSubstr("companion 'witness' starts afresh: step 1 has no entries of it"));
}

// A value of a companion that is refused only when it is seen.
class PickyState final : public State {
 public:
  explicit PickyState(int64_t* value) { AddValue("picky.value", value); }
  absl::Status Receive(size_t entry, std::span<const std::byte> bytes) override {
    if (refuses) return absl::InvalidArgumentError("not mine");
    return State::Receive(entry, bytes);
  }
  bool refuses = false;
};

class Picky final : public Companion {
 public:
  const std::string& prefix() const override { return prefix_; }
  absl::Status Update(const Snapshot& snapshot) override {
    value = snapshot.step();
    return absl::OkStatus();
  }
  PickyState& state() override { return state_; }
  void Reset() override { value = 0; }

  int64_t value = 0;

 private:
  const std::string prefix_ = "picky";
  PickyState state_{&value};
};

TEST_F(CompanionTest, RefusesAValueBeforeAnyTensorIsTouched) {
  auto checkpointer = Open();
  auto witness = std::make_shared<Witness>("witness");
  auto picky = std::make_shared<Picky>();
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  ASSERT_THAT(checkpointer->AddCompanion(picky), IsOk());
  Save(*checkpointer, 1);
  trainer_.SetTo(5);
  witness->weight = 99;
  witness->steps = "changed";
  picky->value = 7;
  picky->state().refuses = true;
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("companion 'picky': not mine")));
  EXPECT_TRUE(trainer_.IsAt(5));
  EXPECT_EQ(witness->weight, 99);
  EXPECT_EQ(witness->steps, "changed");
  EXPECT_EQ(picky->value, 7);
  picky->state().refuses = false;
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(1));
  EXPECT_EQ(witness->steps, "1 ");
  EXPECT_EQ(picky->value, 1);
}

TEST_F(CompanionTest, RefusesWhatDoesNotFitBeforeAnythingIsTouched) {
  auto checkpointer = Open();
  auto witness = std::make_shared<Witness>("witness");
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  Save(*checkpointer, 1);
  trainer_.SetTo(5);
  double more = 0;
  witness->state().AddValue("witness.more", &more);
  EXPECT_THAT(
      checkpointer->RestoreLatest(trainer_.state),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("companion 'witness'"), HasSubstr("missing in the checkpoint: 'witness.more'"))));
  EXPECT_TRUE(trainer_.IsAt(5));
  EXPECT_EQ(witness->steps, "1 ");
}

TEST_F(CompanionTest, FallsBackPastAStepWhoseCompanionIsDamaged) {
  auto ema = Ema();
  std::vector<std::string> at_step_1;
  {
    auto checkpointer = Open({.compression = Compression::kNone, .reuse = false});
    ASSERT_THAT(checkpointer->AddCompanion(ema), IsOk());
    Save(*checkpointer, 1);
    at_step_1 = Contents(*ema);
    Save(*checkpointer, 2);
  }
  // The average's first bytes are in the file once, as they are.
  const State::Entry* weight = nullptr;
  for (const State::Entry& entry : ema->state().entries()) {
    if (entry.spec.name == "ema.model.weight") weight = &entry;
  }
  ASSERT_NE(weight, nullptr);
  const std::string shard = ShardPath(store_, 2);
  std::ifstream file(shard, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t offset = bytes.find(std::string(reinterpret_cast<const char*>(weight->host), 256));
  ASSERT_NE(offset, std::string::npos);
  FlipBit(shard, offset + 100);

  auto checkpointer = Open();
  auto restored = Ema();
  ASSERT_THAT(checkpointer->AddCompanion(restored), IsOk());
  auto report = checkpointer->RestoreLatest(trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  EXPECT_TRUE(trainer_.IsAt(1));
  ASSERT_EQ(report->passed_over.size(), 1u);
  EXPECT_THAT(report->passed_over[0].second, AllOf(HasSubstr("companion 'ema'"), HasSubstr("ema.model.weight")));
  EXPECT_EQ(Contents(*restored), at_step_1);
}

TEST_F(CompanionTest, GoesOnAfterReopeningAsIfNothingHadHappened) {
  auto uninterrupted = Ema();
  {
    auto checkpointer = Open();
    ASSERT_THAT(checkpointer->AddCompanion(uninterrupted), IsOk());
    for (int64_t step = 1; step <= 3; ++step) Save(*checkpointer, step);
  }
  auto resumed = Ema();
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(resumed), IsOk());
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  EXPECT_EQ(Contents(*resumed), Contents(*uninterrupted));
  for (int64_t step = 4; step <= 6; ++step) Save(*checkpointer, step);
  ASSERT_THAT(checkpointer->Close(), IsOk());

  const std::string elsewhere = directory_ / "elsewhere";
  auto other = AsyncCheckpointer::Open({.directory = elsewhere});
  ASSERT_THAT(other, IsOk());
  ASSERT_THAT((*other)->AddCompanion(uninterrupted), IsOk());
  for (int64_t step = 4; step <= 6; ++step) {
    trainer_.SetTo(step);
    ASSERT_THAT((*other)->Save(step, trainer_.state), IsOk());
  }
  ASSERT_THAT((*other)->Close(), IsOk());
  EXPECT_EQ(Contents(*resumed), Contents(*uninterrupted));
}

TEST_F(CompanionTest, AnAverageCountsAStepOnceThatIsSavedAgainAfterAFailure) {
  storage::FailingFileSystem files(storage::PosixFileSystem());
  auto opened = CheckpointerOnFileSystem::Open(files, {.directory = store_, .observer = NoWarnings()});
  ASSERT_THAT(opened, IsOk());
  auto& checkpointer = **opened;
  auto mean = *MakeAverage({.kind = AverageOptions::Kind::kUniform});
  ASSERT_THAT(checkpointer.AddCompanion(mean), IsOk());
  Save(checkpointer, 1);
  files.SetRule([](const storage::FailingFileSystem::Call& call) {
    const bool fails = call.path.find("/steps/0000000002") != std::string::npos;
    return fails ? absl::ResourceExhaustedError("disk full: " + call.path) : absl::OkStatus();
  });
  trainer_.SetTo(2);
  auto save = checkpointer.Save(2, trainer_.state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("disk full")));
  files.Reset();
  Save(checkpointer, 2);
  const auto bias = [&] {
    EXPECT_THAT(checkpointer.RestoreLatest(trainer_.state, {.only = {"model.*"}, .renames = {{"ema.model", "model"}}}),
                IsOk());
    return trainer_.bias[0];
  };
  EXPECT_EQ(bias(), 1.5) << "of 1 and 2";
  // After a rollback the step is another one.
  ASSERT_THAT(checkpointer.Restore(1, trainer_.state), IsOk());
  Save(checkpointer, 2, {.overwrite = true});
  EXPECT_EQ(bias(), 1.5);
}

TEST_F(CompanionTest, IsLoadedIntoTheModelByARename) {
  auto ema = Ema();
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(ema), IsOk());
  Save(*checkpointer, 1);
  Save(*checkpointer, 2);
  const std::vector<std::string> before = Contents(*ema);
  trainer_.SetTo(5);
  auto report = checkpointer->RestoreLatest(trainer_.state, {.only = {"model.*"}, .renames = {{"ema.model", "model"}}});
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(before, Contains("ema.model.weight=" + std::string(reinterpret_cast<const char*>(trainer_.weight.data()),
                                                                 trainer_.weight.size() * sizeof(float))));
  EXPECT_THAT(trainer_.bias[0], testing::DoubleEq(1.25));  // 1 + 0.25 * (2 - 1)
  EXPECT_EQ(trainer_.epoch, 5);
  EXPECT_EQ(Contents(*ema), before);
  // All of it: the model's own entries have no place left.
  const RestoreOptions all{.renames = {{"ema.model", "model"}}};
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state, all),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("its name is taken by a rename, and it has no other: 'model.weight'")));
  RestoreOptions without = all;
  without.allow_unexpected = true;
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state, without), IsOk());
  EXPECT_THAT(trainer_.bias[0], testing::DoubleEq(1.25));
  EXPECT_EQ(trainer_.epoch, 2);
  EXPECT_EQ(Contents(*ema), before);
}

TEST_F(CompanionTest, IsRestoredAsAWholeOrNotAtAllByPatterns) {
  auto witness = std::make_shared<Witness>("witness");
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  Save(*checkpointer, 1);
  witness->steps = "changed";
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state, {.only = {"*weight"}}), IsOk());
  EXPECT_EQ(witness->steps, "changed");
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state, {.only = {"witness.s*"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pattern 'witness.s*' matches no entry")));
  trainer_.SetTo(5);
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state, {.only = {"witness.*"}}), IsOk());
  EXPECT_EQ(witness->steps, "1 ");
  EXPECT_TRUE(trainer_.IsAt(5));
}

TEST_F(CompanionTest, IsFoundUnderAnotherNameByARename) {
  {
    auto checkpointer = Open();
    ASSERT_THAT(checkpointer->AddCompanion(std::make_shared<Witness>("old")), IsOk());
    Save(*checkpointer, 1);
  }
  auto witness = std::make_shared<Witness>("new");
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddCompanion(witness), IsOk());
  auto report = checkpointer->RestoreLatest(trainer_.state, {.renames = {{"old", "new"}}});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(witness->steps, "1 ");
  EXPECT_THAT(report->unexpected, IsEmpty());
}

}  // namespace
}  // namespace tidemark
