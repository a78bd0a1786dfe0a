// A trainer is killed at random moments, from its start over the recovery into its saves, and started again.
//
// TIDEMARK_KILLS: how many times. TIDEMARK_SEED: what the trainer does, and when it is killed as far as that is not
// left to time.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/unique_fd.h"
#include "tests/real/run_length.h"
#include "tests/real/save_lines.h"
#include "tests/real/step_oracle.h"
#include "tests/real/workload.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/retention/retention_model.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::IsEmpty;

constexpr int kKills = 25;
constexpr int kKillsOfOneStore = 20;
// After so many lines of the trainer, and then after so many microseconds.
constexpr int64_t kLinesMax = 30;
constexpr int64_t kKillMicrosecondsMax = 12'000;
// A trainer that writes nothing for so long waits for something that does not come.
constexpr int kSilenceMilliseconds = 300'000;

// A trainer_process whose lines are read.
class TrainerProcess {
 public:
  explicit TrainerProcess(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    arguments.insert(arguments.begin(), TRAINER_PROCESS);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (posix_spawn(&process_, TRAINER_PROCESS, &actions, nullptr, argv.data(), environ) != 0) std::abort();
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    told_ = storage::UniqueFd(ends[0]);
  }
  ~TrainerProcess() {
    if (process_ > 0) Kill();
  }

  // Reads on until there are so many lines, or none comes any more. Fails the test if that takes too long.
  void AwaitLines(int64_t count) {
    while (static_cast<int64_t>(lines_.size()) < count && ReadSome()) continue;
  }

  // What waitpid says of its end. All of its lines are there then.
  int Kill() {
    kill(process_, SIGKILL);
    int how = -1;
    waitpid(process_, &how, 0);
    process_ = -1;
    while (ReadSome()) continue;
    return how;
  }

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  bool ReadSome() {
    pollfd readable = {.fd = told_.get(), .events = POLLIN};
    if (poll(&readable, 1, kSilenceMilliseconds) == 0) {
      ADD_FAILURE() << "the trainer hangs; its last line: " << (lines_.empty() ? "none" : lines_.back());
      return false;
    }
    char buffer[4096];
    const ssize_t size = read(told_.get(), buffer, sizeof(buffer));
    if (size <= 0) return false;
    for (const char c : std::string_view(buffer, static_cast<size_t>(size))) {
      if (c != '\n') {
        line_ += c;
        continue;
      }
      lines_.push_back(std::move(line_));
      line_.clear();
    }
    return true;
  }

  pid_t process_ = -1;
  storage::UniqueFd told_;
  std::string line_;
  std::vector<std::string> lines_;
};

class KillLoopTest : public testing::Test {
 protected:
  ~KillLoopTest() override { std::filesystem::remove_all(in_memory_); }

  int64_t Draw(int64_t from, int64_t to) { return storage::RandomNumber(random_, from, to); }

  // A store on the disk, where a trainer spends its time in syncs, or one in memory, where it spends it elsewhere.
  void BeginStore(bool in_memory) {
    if (oracle_ != nullptr) {
      acknowledged_ += oracle_->acknowledged();
      checked_ += oracle_->checked();
    }
    std::filesystem::remove_all(store_);
    store_ = (in_memory ? in_memory_ : folder_.path()) + "/store";
    oracle_ = std::make_unique<StepOracle>();
  }

  // Starts the trainer, and kills it.
  void TrainUntilTheKill() {
    TrainerProcess trainer({store_, std::to_string(random_()), std::to_string(oracle_->next_step()),
                            std::to_string(oracle_->next_version())});
    trainer.AwaitLines(Draw(0, 3) == 0 ? 0 : Draw(0, kLinesMax));
    const absl::Duration delay = absl::Microseconds(Draw(0, kKillMicrosecondsMax));
    for (const absl::Time begin = absl::Now(); absl::Now() - begin < delay;) continue;
    const int how = trainer.Kill();
    for (const std::string& line : trainer.lines()) Take(line);
    ASSERT_TRUE(WIFSIGNALED(how)) << "it had ended by itself: " << how;
    if (trainer.lines().empty()) ++early_;
  }

  void Take(const std::string& line) {
    long step = 0;
    long version = 0;
    EXPECT_FALSE(line.starts_with("error ")) << line;
    if (line.starts_with("warning ")) ++warnings_;
    if (std::sscanf(line.c_str(), "resumed %ld %ld", &step, &version) == 2) {
      ++resumed_;
      if (step > 0) {
        EXPECT_THAT(oracle_->CheckRestored(step, version), IsEmpty());
      }
      // A step of which none is acknowledged may have been there, so nothing follows from none.
      return;
    }
    EXPECT_TRUE(ReadSaveLine(line, *oracle_) || line.starts_with("warning ") || line.starts_with("error ")) << line;
  }

  // As the kill left it, by who changes nothing; or, now and then, by the next trainer's own recovery.
  void CheckStore() {
    if (Draw(0, 4) > 0) {
      auto reader = StoreReader::Open(store_);
      if (absl::IsNotFound(reader.status()) && oracle_->acknowledged() == 0) return;  // killed before there was a store
      ASSERT_THAT(reader, IsOk());
      EXPECT_THAT(oracle_->CheckUnopened(**reader), IsEmpty());
      return;
    }
    CheckpointerOptions options = DrawOptions(random_, store_);
    options.tuning.poll_interval = absl::InfiniteDuration();  // a late report would let steps go that are being checked
    auto checkpointer = AsyncCheckpointer::Open(options);
    ASSERT_THAT(checkpointer, IsOk());
    EXPECT_THAT(oracle_->CheckOpened(**checkpointer, store_), IsEmpty());
    EXPECT_THAT((*checkpointer)->Close(), IsOk());
  }

  storage::TestDirectory folder_;
  const std::string in_memory_ = storage::NewFolderInMemory("kill_loop");
  std::string store_ = folder_ / "store";
  std::mt19937 random_;
  std::unique_ptr<StepOracle> oracle_;
  uint64_t acknowledged_ = 0;
  uint64_t checked_ = 0;
  int early_ = 0;
  int resumed_ = 0;
  int warnings_ = 0;
};

TEST_F(KillLoopTest, EveryAcknowledgedStepIsThereAfterEveryKill) {
  const int kills = RunLength("TIDEMARK_KILLS", kKills);
  const uint32_t seed = storage::FirstSeed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  random_.seed(seed);
  RunProgress progress("kills", kills);
  for (int i = 0; i < kills; ++i) {
    SCOPED_TRACE(fmt::format("kill {}", i));
    if (i % kKillsOfOneStore == 0) BeginStore(/*in_memory=*/i / kKillsOfOneStore % 2 == 1);
    TrainUntilTheKill();
    ASSERT_FALSE(HasFailure());
    CheckStore();
    ASSERT_FALSE(HasFailure());
    progress.Show(i + 1, fmt::format("{} acknowledged saves", acknowledged_ + oracle_->acknowledged()));
  }
  BeginStore(/*in_memory=*/false);
  progress.End();
  Summarize(fmt::format(
      "kills: {}, of them {} before the trainer had resumed; {} saves acknowledged, {} acknowledged steps held "
      "against the store, none lost, and every resumption exact; {} warnings; seed {}",
      kills, kills - resumed_, acknowledged_, checked_, warnings_, seed));
  if (kills >= kKills) {
    EXPECT_GT(acknowledged_, static_cast<uint64_t>(kills)) << "else little is tested";
  }
}

}  // namespace
}  // namespace tidemark
