// Ranks are processes. One is killed or stopped at some moment, and every other one must be told something within its
// deadline. Then all are killed, and the job is started again with another number of ranks.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/ranks/ranked_job.h"

extern char** environ;

namespace tidemark::storage {
namespace {

using std::chrono::milliseconds;

class RankProcesses {
 public:
  RankProcesses(std::string store, std::string folder) : store_(std::move(store)), folder_(std::move(folder)) {}
  ~RankProcesses() { KillAll(); }

  void Start(uint32_t world_size, int64_t first_step) {
    std::filesystem::remove(folder_ + "/held");
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      std::filesystem::remove(LogOf(rank));
      std::vector<std::string> words = {
          TIDEMARK_RANK_PROCESS,     store_, folder_, std::to_string(rank), std::to_string(world_size),
          std::to_string(first_step)};
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      pid_t pid = 0;
      ASSERT_EQ(posix_spawn(&pid, TIDEMARK_RANK_PROCESS, nullptr, nullptr, arguments.data(), environ), 0);
      pids_.push_back(pid);
    }
  }

  void Signal(uint32_t rank, int signal) { kill(pids_[rank], signal); }

  void KillAll() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    pids_.clear();
  }

  // What the rank was told: for each step "committed", "aborted" or "unknown".
  std::map<int64_t, std::string> Told(uint32_t rank) const {
    std::map<int64_t, std::string> told;
    std::ifstream log(LogOf(rank));
    std::string line;
    while (std::getline(log, line)) {
      std::istringstream words(line);
      std::string what;
      int64_t step = 0;
      words >> what >> step;
      told[step] = what;
    }
    return told;
  }

  // Whether the rank is told of more than `steps` steps within 15 seconds, some seven times its deadline.
  bool IsToldMoreThan(size_t steps, uint32_t rank) const {
    const auto begin = std::chrono::steady_clock::now();
    while (Told(rank).size() <= steps) {
      if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(15)) return false;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
  }

 private:
  std::string LogOf(uint32_t rank) const { return fmt::format("{}/log-{}", folder_, rank); }

  const std::string store_;
  const std::string folder_;
  std::vector<pid_t> pids_;
};

TEST(KilledRanksTest, EveryOtherRankIsToldAndNoPromiseIsBroken) {
  const TestDirectory directory;
  const std::string store_path = directory.path() + "/store";
  const auto seed = SeedOfCases();
  SCOPED_TRACE(fmt::format("TIDEMARK_SEED={}", seed));
  std::minstd_rand random(seed);
  RankProcesses processes(store_path, directory.path());
  std::set<int64_t> committed, aborted;
  std::map<std::string, int> counts;
  int64_t next_step = 1;
  const int rounds = AllCasesAsked() ? 60 : 4;
  for (int round = 0; round < rounds; ++round) {
    const uint32_t world_size = 2 + random() % 3;
    const uint32_t victim = round % 2 == 0 ? 0 : 1 + random() % (world_size - 1);
    const bool is_stopped = random() % 2 == 0;
    SCOPED_TRACE(
        fmt::format("round {}: rank {} of {} is {}", round, victim, world_size, is_stopped ? "stopped" : "killed"));
    processes.Start(world_size, next_step);
    for (uint32_t rank = 0; rank < world_size; ++rank) ASSERT_TRUE(processes.IsToldMoreThan(1, rank)) << rank;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    processes.Signal(victim, is_stopped ? SIGSTOP : SIGKILL);
    std::this_thread::sleep_for(milliseconds(20));
    // Two answers, since the first one may have been on its way.
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      if (rank == victim) continue;
      const size_t steps = processes.Told(rank).size();
      ASSERT_TRUE(processes.IsToldMoreThan(steps + 1, rank)) << "rank " << rank << " is told nothing";
    }
    // A stopped rank goes on, and finds out what has become of its step.
    if (is_stopped) {
      processes.Signal(victim, SIGCONT);
      const size_t steps = processes.Told(victim).size();
      ASSERT_TRUE(processes.IsToldMoreThan(steps, victim));
    }
    processes.KillAll();
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      for (const auto& [step, what] : processes.Told(rank)) {
        ASSERT_NE(what, "failed");
        ++counts[what];
        if (what == "committed") committed.insert(step);
        if (what == "aborted") aborted.insert(step);
        next_step = std::max(next_step, step + 1);
      }
    }
    next_step += 10;  // beyond what a rank was at when it was killed

    std::string warnings;
    const std::unique_ptr<Store> store = OpenSoundStore(store_path, &warnings);
    ASSERT_NE(store, nullptr);
    for (const int64_t step : committed) {
      ASSERT_FALSE(aborted.contains(step)) << "ranks were told different outcomes of step " << step;
      ASSERT_THAT(CheckStep(PosixFileSystem(), *store, step), IsOk()) << step;
    }
    for (const int64_t step : aborted) {
      ASSERT_TRUE(absl::IsNotFound(CheckStep(PosixFileSystem(), *store, step).status())) << step;
    }
  }
  std::printf("%d rounds: told committed %d, aborted %d, unknown %d\n", rounds, counts["committed"], counts["aborted"],
              counts["unknown"]);
  EXPECT_GT(counts["committed"], 2 * rounds);
  EXPECT_GT(counts["aborted"] + counts["unknown"], 0);
}

TEST(HeldStoreTest, SurvivesEncodingExactly) {
  const HeldStore held = {.id = StoreId{{1}},
                          .session = SessionId{{2}},
                          .epoch = 3,
                          .place = {.number = 4, .digest = Digest128{{5}}, .epoch = 6},
                          .sequence = 7};
  const std::string bytes = EncodeHeldStore(held);
  const absl::StatusOr<HeldStore> decoded = DecodeHeldStore(bytes);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, held);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_TRUE(absl::IsDataLoss(DecodeHeldStore(changed).status())) << i;
    EXPECT_TRUE(absl::IsDataLoss(DecodeHeldStore(bytes.substr(0, i)).status())) << i;
  }
}

}  // namespace
}  // namespace tidemark::storage
