// Crashes as text, so that a person can have one again.

#ifndef TIDEMARK_TESTS_CRASH_CRASH_NAMES_H_
#define TIDEMARK_TESTS_CRASH_CRASH_NAMES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/storage/io/crash_states.h"

namespace tidemark::crash {

// What befalls a store: a crash and, where it is to be made anew from the shards then, the loss of its manifest.
struct Disaster {
  storage::Crash crash;
  bool manifest_lost = false;
};

// "41-38-40:ff": before operation 41, without 38, and without the sectors ff of 40. "41!": and without the manifest.
std::string NameOf(const Disaster& disaster);

// One after the other, with a slash between them. Nothing for text that NameOf does not give.
std::optional<std::vector<Disaster>> ParseDisasters(std::string_view text);

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_CRASH_NAMES_H_
