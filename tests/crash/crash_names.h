// Crashes as text, so that a person can have one again.

#ifndef TIDEMARK_TESTS_CRASH_CRASH_NAMES_H_
#define TIDEMARK_TESTS_CRASH_CRASH_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/storage/io/crash_states.h"

namespace tidemark::crash {

// What becomes of a store's index besides. It must make no difference.
enum class IndexFate {
  kKept,
  kLost,
  kOld,      // one that was there before: as before operation `draw`
  kFlipped,  // bytes of it, drawn by `draw`
  kForeign,  // that of another store
  kOpen,     // kept, and nothing is lost: the process was killed, and the machine goes on
};

// What befalls a store.
struct Disaster {
  storage::Crash crash;
  IndexFate index = IndexFate::kKept;
  uint64_t draw = 0;  // of kOld and kFlipped; else 0
};

// "41-38-40:ff": before operation 41, without 38, and without the sectors ff of 40. Then the index: "41!" is lost,
// "41!17" is as before operation 17, "41!~ff" has flipped bytes, "41!x" is another store's, and "41!=" is open.
std::string NameOf(const Disaster& disaster);

// One after the other, with a slash between them. Nothing for text that NameOf does not give.
std::optional<std::vector<Disaster>> ParseDisasters(std::string_view text);

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_CRASH_NAMES_H_
