// Beside a trainer that goes on saving: what it replaces or deletes hinders no command.

#include <atomic>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "tests/snapshot/observers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::ContainsRegex;

TEST(LiveTrainer, ThatReplacesAStepHindersNoCommand) {
  TestStore store;
  auto checkpointer = store.OpenCheckpointer();
  TestState state(200'000);
  for (int64_t step : {1, 2}) ASSERT_TRUE(checkpointer->Save(step, state).ok());
  ASSERT_TRUE(checkpointer->WaitUntilCommitted().ok());
  std::atomic<bool> enough = false;
  std::thread trainer([&] {
    for (int64_t step = 3; !enough; ++step) {
      EXPECT_TRUE(checkpointer->Save(step, state).ok());
      EXPECT_TRUE(checkpointer->Save(2, state, {.overwrite = true}).ok());
    }
    EXPECT_TRUE(checkpointer->WaitUntilCommitted().ok());
  });
  for (int i = 0; i < 10; ++i) {
    for (const char* command : {"ls", "verify"}) {
      const Finished run = RunInspect({"--store", store.directory(), command});
      EXPECT_EQ(run.exit_code, 0) << command << "\n" << run.out << run.err;
      EXPECT_EQ(Occurrences(run.out, "index: unusable"), 0u) << run.out;
    }
    const Finished show = RunInspect({"--store", store.directory(), "show", "2"});
    EXPECT_EQ(show.exit_code, 0) << show.err;
  }
  enough = true;
  trainer.join();
  EXPECT_TRUE(checkpointer->Close().ok());
}

// Each thread does what a worker and a person do, again and again, and looks at once whether it is there for others.
TEST(LiveTrainer, RunsBesideAHundredCallsOfWhichNoneIsRefused) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 5;  // of five calls each
  const TestStore store;
  auto checkpointer = store.OpenCheckpointer();
  TestState state(5000);
  for (int64_t step = 1; step <= kThreads; ++step) ASSERT_TRUE(checkpointer->Save(step, state).ok());
  ASSERT_TRUE(checkpointer->WaitUntilCommitted().ok());
  std::atomic<bool> enough = false;
  std::thread trainer([&] {
    for (int64_t step = kThreads + 1; !enough; ++step) {
      EXPECT_TRUE(checkpointer->Save(step, state).ok());
      EXPECT_TRUE(checkpointer->WaitUntilCommitted().ok());
    }
  });
  std::atomic<int> calls = 0;
  const auto work = [&](int64_t step) {
    const std::string number = std::to_string(step);
    for (int round = 0; round < kRounds; ++round) {
      const std::string mark = "t" + number + "-" + std::to_string(round);
      store.Deliver(step, {.evaluator = mark, .metrics = {{"loss", 0.5}}});
      for (const std::vector<std::string>& command : {std::vector<std::string>{"pin", number, "--note", mark},
                                                      {"tag", number, mark},
                                                      {"show", number},
                                                      {"ls"},
                                                      {"journal", "--step", number}}) {
        std::vector<std::string> arguments = {"--store", store.directory()};
        arguments.insert(arguments.end(), command.begin(), command.end());
        const Finished run = RunInspect(arguments);
        EXPECT_EQ(run.exit_code, 0) << command[0] << "\n" << run.out << run.err;
        EXPECT_EQ(run.err, "") << command[0];
        ++calls;
      }
      const StepInfo info = store.Info(step);
      EXPECT_EQ(info.pin_note, mark);
      EXPECT_THAT(info.tags, testing::Contains(mark));
      EXPECT_TRUE(info.evaluated_by(mark));
    }
  };
  std::vector<std::thread> threads;
  for (int64_t step = 1; step <= kThreads; ++step) threads.emplace_back(work, step);
  for (std::thread& thread : threads) thread.join();
  enough = true;
  trainer.join();
  EXPECT_EQ(calls, 100);
  ASSERT_TRUE(checkpointer->Tidy().ok());
  const auto steps = checkpointer->Steps();
  ASSERT_TRUE(steps.ok()) << steps.status();
  for (size_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ((*steps)[i].tags.size(), size_t{kRounds}) << "the trainer knows them too";
    EXPECT_EQ((*steps)[i].evaluations.size(), size_t{kRounds});
  }
  EXPECT_TRUE(checkpointer->Close().ok());
}

// Saves one step after another, as far as it is told to, and keeps the last three.
class Trainer {
 public:
  explicit Trainer(const std::string& directory) : weight_(200'000) {
    CheckpointerOptions options{.directory = directory};
    options.retention.max_to_keep = 3;
    // No file outlives its step.
    options.reuse = false;
    options.compression = Compression::kNone;
    options.observer = ObserverOf(
        {.deleted = [this](int64_t, std::string_view) { ++deletions_; }, .warning = [](std::string_view) {}});
    auto opened = AsyncCheckpointer::Open(std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status();
    checkpointer_ = *std::move(opened);
    state_.AddTensor("weight", Dtype::kFloat32, {static_cast<int64_t>(weight_.size())}, weight_.data());
    thread_ = std::thread([this] { Train(); });
  }

  ~Trainer() {
    WaitUntilCommitted();
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    thread_.join();
    const absl::Status closed = checkpointer_->Close();
    EXPECT_TRUE(closed.ok()) << closed;
  }

  // So many steps more; does not wait for them.
  void Save(int64_t steps) {
    absl::MutexLock lock(&mutex_);
    last_ += steps;
  }

  // Until all that it was told to save is; returns the last of them.
  int64_t WaitUntilCommitted() {
    absl::MutexLock lock(&mutex_);
    const auto all = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return committed_ == last_; };
    mutex_.Await(absl::Condition(&all));
    return committed_;
  }

  int64_t deletions() const { return deletions_; }

 private:
  void Train() {
    for (int64_t step = 1;; ++step) {
      {
        absl::MutexLock lock(&mutex_);
        const auto told = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ended_ || committed_ < last_; };
        mutex_.Await(absl::Condition(&told));
        if (ended_) return;
      }
      for (size_t i = 0; i < weight_.size(); ++i) weight_[i] = static_cast<float>(step) + static_cast<float>(i);
      const auto saved = checkpointer_->Save(step, state_, {.metrics = {{"loss", 1.0 / static_cast<double>(step)}}});
      EXPECT_TRUE(saved.ok()) << saved.status();
      const absl::Status committed = checkpointer_->WaitUntilCommitted();
      EXPECT_TRUE(committed.ok()) << committed;
      absl::MutexLock lock(&mutex_);
      committed_ = step;
    }
  }

  std::vector<float> weight_;
  State state_;
  std::atomic<int64_t> deletions_ = 0;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;

  absl::Mutex mutex_;
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t committed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

class DeletingTrainerTest : public testing::Test {
 protected:
  DeletingTrainerTest() { trainer_.Save(3); }

  // The command, while the trainer saves so many steps.
  Finished RunDuring(int64_t steps, std::vector<std::string> arguments) {
    trainer_.WaitUntilCommitted();
    trainer_.Save(steps);
    arguments.insert(arguments.begin(), {"--store", store_.directory()});
    return RunInspect(arguments);
  }

  const TestStore store_;
  const TestStore elsewhere_;
  const std::string out_ = elsewhere_.directory() + "/out";
  Trainer trainer_{store_.directory()};
};

TEST_F(DeletingTrainerTest, HindersNoCommandThatLooksAtTheLatestStep) {
  const std::vector<std::vector<std::string>> commands = {{"ls"},
                                                          {"stats"},
                                                          {"history", "loss"},
                                                          {"verify"},
                                                          {"trace", "latest", "-o", out_, "--force"},
                                                          {"show", "latest"},
                                                          {"tensors", "latest"},
                                                          {"tensors", "latest", "--stats"},
                                                          {"diff", "latest", "latest"},
                                                          {"report", "-o", out_, "--force"},
                                                          {"export", "latest", "-o", out_, "--force"}};
  for (int round = 0; round < 3; ++round) {
    for (const std::vector<std::string>& arguments : commands) {
      // After two more steps the one that was the latest is still there.
      const Finished run = RunDuring(2, arguments);
      EXPECT_EQ(run.exit_code, 0) << testing::PrintToString(arguments) << "\n" << run.out << run.err;
    }
  }
  EXPECT_GT(trainer_.deletions(), 0);
}

TEST_F(DeletingTrainerTest, LetsAStepGoThatIsThenCalledDeletedAndNotDamaged) {
  for (int round = 0; round < 3; ++round) {
    for (std::vector<std::string> arguments : {std::vector<std::string>{"show"},
                                               {"tensors"},
                                               {"tensors", "--stats"},
                                               {"diff", "latest"},
                                               {"verify"},
                                               {"trace", "-o", out_, "--force"},
                                               {"export", "-o", out_, "--force"}}) {
      // The first that goes, while six steps are saved.
      const int64_t step = trainer_.WaitUntilCommitted() - 2;
      arguments.insert(arguments.begin() + 1, std::to_string(step));
      const Finished run = RunDuring(6, arguments);
      const bool is_diff = arguments[0] == "diff";
      if (run.exit_code == (is_diff ? 1 : 0)) continue;
      EXPECT_EQ(run.exit_code, is_diff ? 2 : 1) << testing::PrintToString(arguments) << "\n" << run.out << run.err;
      EXPECT_THAT(run.out + run.err, ContainsRegex("was deleted|removed while it was being read"));
    }
  }
  EXPECT_GT(trainer_.deletions(), 0);
}

}  // namespace
}  // namespace tidemark::inspect
