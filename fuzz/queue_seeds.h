// The seeds of the target `io_queue`.

#ifndef TIDEMARK_FUZZ_QUEUE_SEEDS_H_
#define TIDEMARK_FUZZ_QUEUE_SEEDS_H_

#include <map>
#include <string>

namespace tidemark::fuzz {

// Rounds with every change of what is registered, and random ones. By "io_queue/NAME".
std::map<std::string, std::string> QueueSeeds();

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_QUEUE_SEEDS_H_
