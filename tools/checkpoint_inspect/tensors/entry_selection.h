// Choosing entries by their names.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_ENTRY_SELECTION_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_ENTRY_SELECTION_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/step_reader.h"

namespace tidemark::inspect {

// How a pattern of entries is written, for --help.
inline constexpr std::string_view kGlobHelp =
    "matched against the whole name: '*' matches any characters, also dots, '?' matches one";

// For CLI::Option::check: why the text is no pattern; empty where it is one. An empty text is none: whoever gives it,
// as by a shell variable that is not set, did not mean every entry.
std::string CheckGlob(const std::string& text);

// The entries whose names match (see GlobMatches), in their order; all for an empty pattern. kNotFound: none does; the
// message is that of NothingMatches. `where`: for the message, "step 1000 of run/ckpt".
absl::StatusOr<std::vector<size_t>> SelectEntries(std::span<const StoredEntry> entries, std::string_view glob,
                                                  std::string_view where);

// Of `names` the few whose distance from the pattern is the smallest, the nearest first, each once.
std::vector<std::string> NearestNames(std::string_view glob, std::span<const std::string> names);

// kNotFound: "nothing in WHERE matches 'x*'; nearest: a, b", of these names. Where they match a pattern that goes on,
// it is that one: "nothing in WHERE matches 'x'; a GLOB must match the whole name: '*x*' matches 12".
absl::Status NothingMatches(std::string_view glob, std::span<const std::string> names, std::string_view where);

// How many characters must be put in, taken out or replaced until the name matches. Takes at most pattern times name
// steps.
size_t DistanceFromGlob(std::string_view glob, std::string_view name);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_ENTRY_SELECTION_H_
