// Whether boxes of one tensor have an element in common. Pure.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_BOX_OVERLAP_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_BOX_OVERLAP_H_

#include <cstddef>
#include <span>
#include <utility>
#include <variant>

#include "tidemark/entry.h"

namespace tidemark::storage {

struct AllApart {};
struct NotToldApart {};  // that would take too long
using BoxOverlap = std::variant<AllApart, NotToldApart, std::pair<size_t, size_t>>;

// The numbers of two boxes that overlap or are the same, the lower one first. Precondition: specs of one shape that are
// valid and have a box. Time and memory are those of some n log n numbers for each dimension. In that time boxes are
// told apart if planes that cut few of them in two separate them. Up to 32 boxes always are.
BoxOverlap FindOverlap(std::span<const EntrySpec* const> boxes);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_BOX_OVERLAP_H_
