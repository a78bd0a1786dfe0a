// The seeds of the target `fact`.

#ifndef TIDEMARK_FUZZ_FACT_SEEDS_H_
#define TIDEMARK_FUZZ_FACT_SEEDS_H_

#include <map>
#include <string>

namespace tidemark::fuzz {

// One fact of each kind, and all of them as one journal. By "fact/NAME".
std::map<std::string, std::string> FactSeeds();

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_FACT_SEEDS_H_
