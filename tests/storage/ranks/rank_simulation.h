// A simulated job of 2 to 64 ranks, which saves two steps. Time is virtual. A seed decides how long each action takes
// and what goes wrong. The simulation calls the state machines of storage/ranks, and a RankWorld stands in for the
// disk. It encodes each vote and each outcome, and gives the decoded copy to the rank that reads it.

#ifndef TIDEMARK_TESTS_STORAGE_RANKS_RANK_SIMULATION_H_
#define TIDEMARK_TESTS_STORAGE_RANKS_RANK_SIMULATION_H_

#include <cstdint>
#include <string>

namespace tidemark::storage {

struct SimulatedJob {
  uint32_t ranks = 0;
  // What was drawn to go wrong.
  int deaths = 0;  // of ranks
  bool coordinator_died = false;
  int stalls = 0;
  int failed_syncs = 0;
  bool was_taken_over = false;
  bool lost_power = false;
  bool loses_messages = false;
  bool is_sound() const {
    return deaths == 0 && stalls == 0 && failed_syncs == 0 && !was_taken_over && !lost_power && !loses_messages;
  }

  // What the ranks were told, one for each rank and step.
  int committed = 0;
  int aborted = 0;
  int unknown = 0;
  double last_told = 0;   // virtual seconds after the beginning
  std::string violation;  // of RankWorld, or what rank was told nothing in time; empty: none
};

SimulatedJob SimulateJob(uint32_t seed);

inline constexpr int kSteps = 2;
inline constexpr double kPollSeconds = 0.2;  // between two looks, at most
inline constexpr double kWriteSeconds = 2;   // of a shard, at most
// The latest time at which a rank of a sound job is told of the last step. A step takes one write and at most seven
// polls: the rank begins, syncs and votes; the coordinator hears the last vote, begins to append and ends it; and the
// rank hears the outcome.
inline constexpr double kSoundJobSeconds = kSteps * (kWriteSeconds + 7 * kPollSeconds);
// How long after its save's beginning a rank may be told, unless it stood still: its deadline, and a last look.
inline constexpr double kToldWithinSeconds = 16;

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RANKS_RANK_SIMULATION_H_
