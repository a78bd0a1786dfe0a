// Groups of names that begin alike, for views that have no room for a row of every name.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_NAME_GROUPS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_NAME_GROUPS_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tidemark::inspect {

struct NameGroup {
  std::string label;  // the name of the only member, "encoder.layers.*", "optimizer.*.exp_avg", or "first … last"
  std::vector<size_t> members;  // into the names, ascending; at least one
};

// At most `groups_max` (>= 1) groups, in the order of their first members; every name is in one. Where the last parts
// of many names are a few words, which tell what a tensor is (a weight, a moment of it), names with different ones are
// never in one group. As long as there is room, the largest group is split by the next part of its names, which '.' or
// '/' divides. Where already the first parts are too many, runs of neighbours are the groups. Pure.
std::vector<NameGroup> GroupNames(std::span<const std::string> names, size_t groups_max);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_NAME_GROUPS_H_
