#include "bench/ranks_probe.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/measure.h"
#include "bench/process.h"
#include "bench/training_state.h"
#include "fmt/format.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/torch.h"
#include "tidemark/torch_ranks.h"
#include "torch/csrc/distributed/c10d/FileStore.hpp"

namespace tidemark::bench {
namespace {

constexpr int kSaves = 3;  // behind one that warms up

// What each rank took for the step, the longest of each. Every rank calls it.
absl::StatusOr<RanksCost> Longest(const AllGather& gather, const RanksCost& own) {
  const auto given = gather(fmt::format("{} {}", own.blocked, own.committed));
  if (!given.ok()) return given.status();
  RanksCost longest;
  for (const std::string& text : *given) {
    RanksCost cost;
    std::istringstream(text) >> cost.blocked >> cost.committed;
    longest.blocked = std::max(longest.blocked, cost.blocked);
    longest.committed = std::max(longest.committed, cost.committed);
  }
  return longest;
}

absl::StatusOr<RanksCost> SaveAsRank(const std::string& directory, int32_t rank, int32_t world_size, uint64_t bytes) {
  TorchState state;
  AddRandomTensors(state, bytes, kTensorCount);
  // Each has a client of its own. With a number of clients, c10d would remove the file when so many are gone, while
  // others still read it.
  const auto gather = [&](const char* name) {
    return GatherOverStore(c10::make_intrusive<c10d::FileStore>(directory + ".ranks", -1), name, rank, world_size,
                           /*timeout=*/absl::Minutes(2));
  };
  const AllGather together = gather("bench");
  auto checkpointer = AsyncCheckpointer::Open(
      {.directory = directory,
       .ranks = {.rank = rank, .world_size = world_size, .all_gather = gather("tidemark"), .replicated = {"*"}},
       .reuse = false,  // as jobs of several ranks have it
       .retention = {.max_to_keep = 1}});
  if (!checkpointer.ok()) return checkpointer.status();
  std::vector<double> blocked;
  std::vector<double> committed;
  for (int64_t step = 0; step <= kSaves; ++step) {
    if (const auto all_are_here = together(""); !all_are_here.ok()) return all_are_here.status();
    const Stopwatch watch;
    auto save = (*checkpointer)->Save(step, state);
    if (!save.ok()) return save.status();
    RanksCost cost{.blocked = watch.seconds()};
    if (absl::Status status = save->committed().Wait(); !status.ok()) return status;
    cost.committed = watch.seconds();
    const absl::StatusOr<RanksCost> longest = Longest(together, cost);
    if (!longest.ok()) return longest.status();
    if (step == 0) continue;
    blocked.push_back(longest->blocked);
    committed.push_back(longest->committed);
  }
  if (absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return closed;
  return RanksCost{.blocked = Median(blocked), .committed = Median(committed)};
}

}  // namespace

absl::StatusOr<RanksCost> MeasureRanks(const std::string& directory, int32_t world_size, uint64_t bytes) {
  std::vector<pid_t> others;
  for (int32_t rank = 1; rank < world_size; ++rank) {
    const pid_t other = fork();
    if (other < 0) return absl::ErrnoToStatus(errno, "fork");
    if (other == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const absl::StatusOr<RanksCost> cost = SaveAsRank(directory, rank, world_size, bytes);
      if (!cost.ok()) fmt::print(stderr, "rank {}: {}\n", rank, cost.status().ToString());
      std::fflush(stderr);
      _exit(cost.ok() ? 0 : 1);
    }
    others.push_back(other);
  }
  absl::StatusOr<RanksCost> cost = SaveAsRank(directory, 0, world_size, bytes);
  for (const pid_t other : others) {
    int status = 0;
    while (waitpid(other, &status, 0) < 0 && errno == EINTR) {
    }
    if (cost.ok() && status != 0) cost = absl::InternalError(fmt::format("a rank ended with the status {}", status));
  }
  return cost;
}

absl::StatusOr<RanksCost> RunRanksProbe(const std::string& directory, int32_t world_size, uint64_t bytes) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const absl::StatusOr<ProcessOutput> output =
      RunProcess({program, kRanksProbeOption, directory, std::to_string(world_size), std::to_string(bytes)});
  std::filesystem::remove_all(directory, error);
  std::filesystem::remove(directory + ".ranks", error);
  if (!output.ok()) return output.status();
  RanksCost cost;
  std::istringstream text(output->out);
  if (output->exit_code != 0 || !(text >> cost.blocked >> cost.committed)) {
    return absl::InternalError(
        fmt::format("the probe of {} ranks: exit code {}: {}", world_size, output->exit_code, output->err));
  }
  return cost;
}

}  // namespace tidemark::bench
