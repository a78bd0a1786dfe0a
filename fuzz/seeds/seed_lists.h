// The seeds that are many lines, each list by "TARGET/NAME".

#ifndef TIDEMARK_FUZZ_SEEDS_SEED_LISTS_H_
#define TIDEMARK_FUZZ_SEEDS_SEED_LISTS_H_

#include <map>
#include <string>

namespace tidemark::fuzz {

// Of `fact`: one fact of each kind, and all of them as one journal.
std::map<std::string, std::string> FactSeeds();

// Of `io_queue`: rounds with every change of what is registered, and random ones.
std::map<std::string, std::string> QueueSeeds();

// Of `rank_statement`: a vote of each kind, and outcomes.
std::map<std::string, std::string> RankSeeds();

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_SEEDS_SEED_LISTS_H_
