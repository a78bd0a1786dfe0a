// Explores what several ranks can do when they save a step together: every order of events in a RankWorld. A process
// that dies needs no event of its own: it is one that does nothing any more.

#ifndef TIDEMARK_TESTS_STORAGE_RANKS_RANK_EXPLORATION_H_
#define TIDEMARK_TESTS_STORAGE_RANKS_RANK_EXPLORATION_H_

#include <cstddef>
#include <cstdint>

#include "tests/storage/ranks/rank_world.h"
#include "tests/storage/search.h"

namespace tidemark::storage {

// Ends at the first RankWorld::Violation. `seed`: of the order; of all states it changes nothing.
Explored ExploreRanks(const RanksSetting& setting, size_t states_max, uint32_t seed = 1);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RANKS_RANK_EXPLORATION_H_
