// Patterns of entry names, and renaming them.

#ifndef TIDEMARK_SNAPSHOT_GLOB_H_
#define TIDEMARK_SNAPSHOT_GLOB_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark {

// '*' stands for any run of characters, dots included, '?' for one; everything else for itself. Takes at most pattern
// times text steps.
bool GlobMatches(std::string_view pattern, std::string_view text);

// See RestoreOptions::renames: whether one of them fits the name, and what the first that does makes of it.
bool IsRenamedBy(std::string_view name, const std::pair<std::string, std::string>& rename);
std::string Renamed(std::string_view name, const std::vector<std::pair<std::string, std::string>>& renames);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_GLOB_H_
