// A job of some processes that save common steps, in processes of its own.

#ifndef TIDEMARK_BENCH_RANKS_PROBE_H_
#define TIDEMARK_BENCH_RANKS_PROBE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tidemark::bench {

// Of a save that all ranks begin at the same time: seconds, the longest of any rank.
struct RanksCost {
  double blocked = 0;
  double committed = 0;  // from the call of Save on
};

// Each rank has the same state of `bytes`, as in data-parallel training; they save it a few times into a new store at
// `directory`. The median of the saves behind the first. Forks; for a process that has no threads yet.
absl::StatusOr<RanksCost> MeasureRanks(const std::string& directory, int32_t world_size, uint64_t bytes);

// The same in a new process, which runs this program with the three arguments behind kRanksProbeOption.
absl::StatusOr<RanksCost> RunRanksProbe(const std::string& directory, int32_t world_size, uint64_t bytes);

inline constexpr const char* kRanksProbeOption = "--ranks-probe";

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_RANKS_PROBE_H_
