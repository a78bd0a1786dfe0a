#include <filesystem>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "storage/io/file_system.h"
#include "storage/store/lease.h"
#include "storage/store/store_layout.h"
#include "tests/snapshot/observers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/prune_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace fs = std::filesystem;

uint64_t ShardBytes(const TestStore& store) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(store.directory() + "/steps")) {
    if (entry.path().extension() == ".tmk") bytes += entry.file_size();
  }
  return bytes;
}

TEST(Prune, SaysWhatItWouldDoAndChangesNotOneByte) {
  TestStore store;
  store.Save({1, 2, 3});
  const auto before = store.Listing();
  const Finished run = Prune(store, {"--keep-latest", "1"});
  EXPECT_EQ(store.Listing(), before);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("delete"), HasSubstr("not among the latest 1"), HasSubstr("latest"),
                             HasSubstr("2 of 3 steps to delete, ")));
  EXPECT_THAT(run.err, HasSubstr("nothing was changed; --apply does it"));
}

TEST(Prune, CountsNoStepThatIsRecordedAsDamagedAndTakesOthersForSound) {
  TestStore store;
  store.Save({1, 2, 3, 4});
  store.Update(3, [](StepInfo& info) { info.state = StepState::kDamaged; });
  store.DamageChunk(2);
  const auto run = RunInspectJson({"prune", "--store", store.directory(), "--keep-latest", "2"});
  ASSERT_EQ(run["plan"].size(), 3u);
  EXPECT_EQ(run["plan"][0]["action"], "delete");
  EXPECT_EQ(run["plan"][1]["step"], 2);
  EXPECT_EQ(run["plan"][1]["action"], "keep");
  EXPECT_EQ(run["plan"][2]["step"], 4);
  EXPECT_THAT(RunInspect({"prune", "--help"}).out, HasSubstr("'verify' first"));
}

TEST(Prune, DeletesWithApplyWhatThePlanSaysAndFreesSoMuch) {
  TestStore store;
  // Steps that share no chunk: each has a size of its own.
  for (int64_t step = 1; step <= 4; ++step) store.Save({step}, {}, 5000 + 100 * step);
  const auto plan = RunInspectJson({"prune", "--keep-latest", "2", "--store", store.directory()});
  EXPECT_EQ(plan["applied"], false);
  ASSERT_EQ(plan["plan"].size(), 4u);
  EXPECT_EQ(plan["plan"][0]["action"], "delete");
  EXPECT_EQ(plan["plan"][3]["action"], "keep");
  EXPECT_EQ(plan["requests"].size(), 0u);
  const uint64_t before = ShardBytes(store);
  const auto applied = RunInspectJson({"prune", "--keep-latest", "2", "--apply", "--store", store.directory()});
  EXPECT_EQ(applied["applied"], true);
  EXPECT_EQ(applied["plan"], plan["plan"]);
  ASSERT_EQ(applied["requests"].size(), 2u);
  EXPECT_EQ(applied["requests"][1]["request"], "delete");
  EXPECT_EQ(applied["requests"][1]["outcome"], "done");
  EXPECT_THAT(Committed(store), ElementsAre(3, 4));
  EXPECT_EQ(before - ShardBytes(store), plan["freed_bytes"]);
  EXPECT_THAT(RunInspect({"ls", "--all", "--store", store.directory()}).out,
              HasSubstr("pruned: not among the latest 2"));
  EXPECT_EQ(RunInspect({"verify", "--store", store.directory()}).exit_code, 0);
}

TEST(Prune, SaysWhoseFilesStayAndFreesNothingOfThem) {
  TestStore store;
  // The second step has its chunks in the first one's file.
  store.SaveReusing({1, 2});
  const uint64_t before = ShardBytes(store);
  const auto plan = RunInspectJson({"prune", "--keep-latest", "1", "--store", store.directory()});
  EXPECT_EQ(plan["plan"][0]["action"], "delete");
  EXPECT_EQ(plan["plan"][0]["needed_by"], nlohmann::json::array({2}));
  EXPECT_EQ(plan["freed_bytes"], 0);
  const Finished run = Prune(store, {"--keep-latest", "1", "--apply"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("its files stay: step 2 has chunks in them"), HasSubstr("deleted 1 of 1")));
  EXPECT_EQ(ShardBytes(store), before);
  EXPECT_EQ(RunInspect({"verify", "2", "--store", store.directory()}).exit_code, 0);
}

// As a process leaves a lease that is killed: no process has its lock.
std::string LeaveLease(const TestStore& store, int64_t step, const std::string& machine) {
  const storage::StoreLayout layout(store.directory());
  const storage::LeaseNote note{.step = step,
                                .attempt = storage::AttemptId{*storage::FromHex(store.Info(step).attempt)},
                                .evaluator = "validation",
                                .holder = "worker 5",
                                .machine = machine,
                                .expiry = absl::Minutes(1)};
  const std::string path = layout.leases() + "/" + storage::LeaseFileName(note.attempt, note.evaluator);
  fs::create_directories(layout.leases());
  WriteWhole(path, storage::EncodeLeaseNote(note));
  return path;
}

TEST(Prune, CountsNoLeaseOfADeadHolder) {
  TestStore store;
  store.Save({1, 2});
  const std::string lease = LeaveLease(store, 1, storage::ThisMachine());
  const auto before = store.Listing();
  const Finished plan = Prune(store, {"--keep-latest", "1"});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("1 of 2 steps to delete, "), Not(HasSubstr("leased"))));
  EXPECT_EQ(store.Listing(), before);
  EXPECT_THAT(ReadWhole(lease), HasSubstr("worker 5"));
  const Finished applied = Prune(store, {"--keep-latest", "1", "--apply"});
  EXPECT_EQ(applied.exit_code, 0) << applied.err;
  EXPECT_THAT(Committed(store), ElementsAre(2));
}

TEST(Prune, CountsALeaseOfAnotherMachineThatMayBeAlive) {
  TestStore store;
  store.Save({1, 2});
  LeaveLease(store, 1, "another machine");
  const Finished run = Prune(store, {"--keep-latest", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("0 of 2 steps to delete, "), HasSubstr("leased by worker 5")));
}

TEST(Prune, KeepsTheLatestPinnedAndLeasedStepsWhateverTheRules) {
  TestStore store;
  store.Save({1, 2, 3, 4});
  ASSERT_EQ(RunInspect({"pin", "1", "--store", store.directory()}).exit_code, 0);
  storage::FileSystem& files = storage::PosixFileSystem();
  storage::LeaseObserver observer(files, storage::StoreLayout(store.directory()), storage::ThisMachine(),
                                  storage::MonotonicNow);
  const auto reader = StoreReader::Open(store.directory());
  ASSERT_TRUE(reader.ok());
  const auto lease =
      observer.Acquire({.step = 2,
                        .attempt = storage::AttemptId{*storage::FromHex((*reader)->FindStep(2)->attempt)},
                        .evaluator = "validation",
                        .holder = "worker 5",
                        .expiry = absl::Minutes(1)});
  ASSERT_TRUE(lease.ok()) << lease.status();
  const Finished run = Prune(store, {"--keep-every", "1000", "--apply"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("pinned"), HasSubstr("leased by worker 5"), HasSubstr("latest")));
  EXPECT_THAT(Committed(store), ElementsAre(1, 2, 4));
}

TEST(Prune, KeepsWhatAnyRuleWants) {
  TestStore store;
  store.Save({1}, {.metrics = {{"loss", 0.25}, {"accuracy", 0.5}}});
  store.Save({2}, {.metrics = {{"loss", 0.75}, {"accuracy", 0.9}}});
  store.Save({3, 5, 7}, {.metrics = {{"loss", 0.5}}});
  EXPECT_EQ(Prune(store, {"--keep-best", "loss", "--keep-best", "accuracy:highest:1", "--keep-every", "5", "--apply"})
                .exit_code,
            0);
  EXPECT_THAT(Committed(store), ElementsAre(1, 2, 5, 7));
  EXPECT_THAT(Prune(store, {"--keep-hours", "0.5"}).out, HasSubstr("2 of 4 steps to delete"));
}

// A trainer whose evaluator reads no step until it is let, and its store of four steps.
class LaggingTrainer {
 public:
  // Its evaluator judges the steps up to `judged`, and then waits for Judge.
  explicit LaggingTrainer(int64_t max_to_keep, int64_t judged = 0) {
    auto opened = AsyncCheckpointer::Open({.directory = store_.directory(),
                                           .retention = {.max_to_keep = max_to_keep},
                                           .tuning = {.poll_interval = absl::Milliseconds(5)},
                                           .observer = NoWarnings()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    checkpointer_ = *std::move(opened);
    const auto evaluate = [this, judged](const Snapshot& snapshot) -> absl::StatusOr<tidemark::Verdict> {
      if (snapshot.step() > judged) gate_.WaitForNotification();
      return tidemark::Verdict();
    };
    EXPECT_TRUE(
        checkpointer_->AddEvaluator({.name = "validation", .when_lagging = WhenLagging::kQueue}, evaluate).ok());
    TestState state(5000);
    for (int64_t step : {1, 2, 3, 4}) {
      EXPECT_TRUE(checkpointer_->Save(step, state).ok());
      EXPECT_TRUE(checkpointer_->WaitUntilCommitted().ok());
      if (step <= judged) {
        EXPECT_TRUE(checkpointer_->WaitUntilEvaluated().ok());
      }
    }
    EXPECT_TRUE(checkpointer_->Tidy().ok());
  }
  ~LaggingTrainer() {
    if (!gate_.HasBeenNotified()) gate_.Notify();
  }

  void Judge() {
    gate_.Notify();
    EXPECT_TRUE(checkpointer_->WaitUntilEvaluated().ok());
  }

  const TestStore& store() const { return store_; }

 private:
  TestStore store_;
  absl::Notification gate_;  // outlives the evaluator's thread
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

TEST(Prune, PlansWithWhatALiveTrainersEvaluatorsHaveYetToRead) {
  const LaggingTrainer trainer(/*max_to_keep=*/9);
  const Finished run = Prune(trainer.store(), {"--keep-latest", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("evaluator 'validation' has not read it yet"));
  const auto plan = RunInspectJson({"prune", "--keep-latest", "1", "--store", trainer.store().directory()});
  EXPECT_EQ(plan["plan"][0]["action"], "keep") << "the evaluator is reading it";
  EXPECT_EQ(plan["plan"][0]["reason"], "the next step for an evaluator to judge");
  EXPECT_EQ(plan["plan"][1]["action"], "keep");
  EXPECT_EQ(plan["plan"][2]["action"], "keep");
}

TEST(Prune, DoesNotKeepAStepThatHasBeenJudgedSinceTheNote) {
  TestStore store;
  store.Save({1, 2});
  store.Update(1, [](StepInfo& info) { info.kept = "the next step for an evaluator to judge"; });
  const auto held = storage::PosixFileSystem().TryLock(storage::StoreLayout(store.directory()).lock());
  ASSERT_TRUE(held.ok()) << held.status();
  const auto action = [&] {
    return RunInspectJson({"prune", "--keep-latest", "1", "--store", store.directory()})["plan"][0]["action"];
  };
  EXPECT_EQ(action(), "keep");
  for (const int64_t step : {1, 2}) store.Deliver(step, {.evaluator = "validation"});
  EXPECT_EQ(action(), "delete");
}

// A trainer refuses a discard for what is being read, and not for what only rules keep.
TEST(Prune, SaysOfADiscardOnlyWhatATrainerWouldRefuseItFor) {
  const LaggingTrainer trainer(/*max_to_keep=*/9, /*judged=*/1);
  EXPECT_THAT((*StoreReader::Open(trainer.store().directory()))->FindStep(2)->kept,
              HasSubstr("the next step for an evaluator to judge"));
  const Finished run = Prune(trainer.store(), {"--after", "1"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("step 3 is kept: evaluator 'validation' has not read it yet"),
                             testing::Not(HasSubstr("the next step for an evaluator"))));
}

// One without rules has noted nothing.
TEST(Prune, SaysInOneLineWhyATrainerRefuses) {
  const LaggingTrainer trainer(/*max_to_keep=*/0);
  const Finished run = Prune(trainer.store(), {"--keep-latest", "1", "--apply", kPatience});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.out, testing::ContainsRegex("\nsteps 2, 3: not deleted: the trainer \\([^)]+, pid [0-9]+ on [^)]+\\) "
                                              "refused: evaluator 'validation' has not read it yet\n"));
  EXPECT_THAT(run.out, testing::ContainsRegex("\nstep 1: not deleted: the trainer \\([^)]+\\) refused: "
                                              "the next step for an evaluator to judge"));
  // It reads step 1, which is the next to be judged.
  EXPECT_EQ(Occurrences(run.out, "has not read it yet"), 1u) << run.out;
  EXPECT_EQ(trainer.store().Info(2).kept, "") << "the answer is in the journal";
}

// What its evaluators judged is what a run is rolled back to.
TEST(Prune, KeepsTheLatestHealthyStepAndTheLatestThatWasFoundHealthy) {
  TestStore store;
  store.Save({1, 2, 3, 4, 5});
  store.Update(2, [](StepInfo& info) { info.evaluations = {{.evaluator = "v"}}; });
  store.Update(5, [](StepInfo& info) { info.evaluations = {{.evaluator = "v", .unhealthy = "diverged"}}; });
  const Finished run = Prune(store, {"--keep-latest", "1"});
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("the latest healthy one"), HasSubstr("the latest that evaluators found healthy")));
  const auto plan = RunInspectJson({"prune", "--keep-latest", "1", "--store", store.directory()});
  EXPECT_EQ(plan["plan"][0]["action"], "delete");
  EXPECT_EQ(plan["plan"][1]["reason"], "the latest that evaluators found healthy");
  EXPECT_EQ(plan["plan"][3]["reason"], "the latest healthy one");
  EXPECT_THAT(RunInspect({"show", "latest-healthy", "--store", store.directory()}).out, StartsWith("step 4"));
}

TEST(Prune, DeletesAllStepsAfterOne) {
  TestStore store;
  for (int64_t step = 1; step <= 4; ++step) store.Save({step}, {}, 5000 + 100 * step);
  const auto before = store.Listing();
  const Finished plan = Prune(store, {"--after", "2"});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(store.Listing(), before);
  EXPECT_THAT(plan.out, AllOf(HasSubstr("not after step 2"), HasSubstr("2 of 4 steps to delete")));
  const uint64_t bytes = ShardBytes(store);
  const auto run = RunInspectJson({"prune", "--after", "2", "--apply", "--store", store.directory()});
  EXPECT_EQ(run["plan"][3]["action"], "delete") << "the latest";
  EXPECT_EQ(run["requests"].size(), 2u);
  EXPECT_EQ(run["requests"][1]["outcome"], "done");
  EXPECT_THAT(Committed(store), ElementsAre(1, 2));
  EXPECT_EQ(bytes - ShardBytes(store), run["freed_bytes"].get<uint64_t>());
  EXPECT_EQ((*StoreReader::Open(store.directory()))->FindStep(4)->reason, "pruned: after step 2");
  EXPECT_EQ(Prune(store, {"--after", "2", "--apply"}).exit_code, 0) << "nothing is left to do";
}

TEST(Prune, DeletesNothingAfterAStepWhereAnyOfThatIsKept) {
  TestStore store;
  store.Save({2, 3, 4});
  ASSERT_EQ(RunInspect({"tag", "3", "release", "--store", store.directory()}).exit_code, 0);
  for (const bool apply : {false, true}) {
    std::vector<std::string> arguments = {"--after", "2"};
    if (apply) arguments.push_back("--apply");
    const Finished run = Prune(store, arguments);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, HasSubstr("the steps after 2 are not discarded: step 3 is kept: tagged release"));
    arguments[1] = "1";
    EXPECT_THAT(Prune(store, arguments).err, HasSubstr("no committed step would remain"));
  }
  EXPECT_THAT(Committed(store), ElementsAre(2, 3, 4));
  EXPECT_EQ(Prune(store, {"--after", "-1"}).exit_code, 2);
  EXPECT_EQ(Prune(store, {"--after", "2", "--keep-latest", "1"}).exit_code, 2);
}

TEST(Prune, LeavesItToATrainerThatHoldsTheStoreToGoBack) {
  TestStore store;
  store.Save({1, 2, 3});
  auto trainer = AsyncCheckpointer::Open({.directory = store.directory(), .observer = NoWarnings()});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const Finished run = Prune(store, {"--after", "1", "--apply"});
  EXPECT_EQ(run.exit_code, 11);
  EXPECT_THAT(run.err, AllOf(HasSubstr("the trainer ("), HasSubstr("DiscardAfter")));
  EXPECT_EQ((*trainer)->LatestStep()->step, 3);
}

TEST(Prune, NeedsARule) {
  TestStore store;
  store.Save({1, 2});
  const Finished run = Prune(store, {"--apply"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("no rule says which steps to keep"));
  EXPECT_THAT(Committed(store), ElementsAre(1, 2));
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--keep-latest", "0"},
                                                {"--keep-every", "-5"},
                                                {"--keep-best", "loss:0"},
                                                {"--keep-hours", "0"},
                                                {"--keep-latest", "many"},
                                                {"--keep-hours", "nan"},
                                                {"--keep-latest", "1", "--wait=0"}}) {
    EXPECT_EQ(Prune(store, wrong).exit_code, 2) << wrong[0] << " " << wrong[1];
  }
}

TEST(Prune, TakesTheNameOfAMetricAsItIs) {
  TestStore store;
  store.Save({1}, {.metrics = {{"[x]", 1}, {"x", 2}}});
  store.Save({2}, {.metrics = {{"[x]", 2}, {"x", 1}}});
  store.Save({3});
  EXPECT_THAT(Prune(store, {"--keep-best", "[x]:highest"}).out, HasSubstr("best [x] (2)"));
}

TEST(Prune, KeepsTheBestByTheEndThatTheNameTells) {
  TestStore store;
  store.Save({1}, {.metrics = {{"validation/accuracy", 0.25}}});
  store.Save({2}, {.metrics = {{"validation/accuracy", 0.75}}});
  store.Save({3});
  const Finished run = Prune(store, {"--keep-best", "validation/accuracy", "--apply"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(Committed(store), ElementsAre(2, 3));
}

TEST(Prune, RefusesToGuessWhichEndOfAMetricIsTheBest) {
  TestStore store;
  store.Save({1}, {.metrics = {{"x", 0.25}}});
  store.Save({2}, {.metrics = {{"x", 0.75}}});
  store.Save({3});
  for (const char* rule : {"x", "x:1"}) {
    const Finished run = Prune(store, {"--keep-best", rule, "--apply"});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err,
              "checkpoint-inspect: error: --keep-best x: neither the trainer nor the name says whether lower or higher "
              "is better; use --keep-best x:lowest or --keep-best x:highest\n");
  }
  EXPECT_THAT(Committed(store), ElementsAre(1, 2, 3));
  store.RecordBestModes({{"x", BestMode::kHighest}});
  const Finished recorded = Prune(store, {"--keep-best", "x"});
  EXPECT_EQ(recorded.err, "checkpoint-inspect: nothing was changed; --apply does it\n");
  EXPECT_THAT(recorded.out, HasSubstr("best x (0.75)"));
}

TEST(Prune, SaysThatAnEndIsNotTheRecordedOne) {
  TestStore store;
  store.Save({1}, {.metrics = {{"x", 0.25}}});
  store.Save({2}, {.metrics = {{"x", 0.75}}});
  store.Save({3});
  store.RecordBestModes({{"x", BestMode::kHighest}});
  const Finished run = Prune(store, {"--keep-best", "x:lowest"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("--keep-best x:lowest keeps the lowest; the trainer recorded that higher is better"));
  EXPECT_THAT(run.out, HasSubstr("best x (0.25)"));
  EXPECT_THAT(Prune(store, {"--keep-best", "x:highest"}).err, Not(HasSubstr("recorded")));
}

TEST(Prune, NamesTheMetricsThatThereAre) {
  TestStore store;
  store.Save({1}, {.metrics = {{"loss", 0.25}}});
  const Finished run = Prune(store, {"--keep-best", "los"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("no step has a metric 'los'"), HasSubstr("loss")));
  EXPECT_EQ(run.out, "");
}

TEST(Prune, DeletesNothingOfAStoreWhoseJournalCannotBeRead) {
  TestStore store;
  store.Save({1, 2});
  store.DamageJournal();
  const auto before = store.Listing();
  const Finished run = Prune(store, {"--keep-latest", "1", "--apply"});
  EXPECT_EQ(run.exit_code, 13);
  EXPECT_THAT(run.err, HasSubstr("run repair first"));
  EXPECT_EQ(store.Listing(), before);
  EXPECT_EQ(Prune(store, {"--keep-latest", "1"}).exit_code, 3) << "who only looks may";
}

TEST(Prune, HasNothingToDoWhereEveryStepStays) {
  TestStore store;
  store.Save({1, 2});
  const Finished run = Prune(store, {"--keep-latest", "5", "--apply"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.out, HasSubstr("0 of 2 steps to delete, 0 B to free"));
  EXPECT_THAT(run.err, Not(HasSubstr("--apply")));
}

TEST(Prune, ExplainsItselfWithAnExample) {
  const Finished help = RunInspect({"prune", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--keep-best"), HasSubstr("--apply"), HasSubstr("Example")));
}

}  // namespace
}  // namespace tidemark::inspect
