// Seeds of rank_statement_fuzzer.cc.

#ifndef TIDEMARK_FUZZ_RANK_SEEDS_H_
#define TIDEMARK_FUZZ_RANK_SEEDS_H_

#include <map>
#include <string>

namespace tidemark::fuzz {

// By "rank_statement/NAME".
std::map<std::string, std::string> RankSeeds();

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_RANK_SEEDS_H_
