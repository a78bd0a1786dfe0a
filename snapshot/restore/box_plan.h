// Boxes are parts of a tensor between two corners. A plan says from which stored boxes a wanted one is read. Pure.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_BOX_PLAN_H_
#define TIDEMARK_SNAPSHOT_RESTORE_BOX_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "tidemark/entry.h"

namespace tidemark {

// Elements [offset[d], offset[d] + extent[d]) of each dimension d. Without dimensions: the one element of a scalar.
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> extent;

  friend bool operator==(const Box&, const Box&) = default;
};

// All of a tensor.
Box WholeBox(std::span<const int64_t> shape);

// What the entry holds.
Box HeldBox(const EntrySpec& spec);

// "[0:4, 2:3]"
std::string DescribeBox(const Box& box);

// The elements of both; nullopt if there are none. Precondition: boxes of as many dimensions.
std::optional<Box> Overlap(const Box& a, const Box& b);

struct BoxPart {
  size_t source = 0;  // index of a stored box that has all of `box`
  Box box;
};

struct BoxPlan {
  std::vector<BoxPart> parts;  // no element is in two of them
  std::vector<Box> missing;    // what no stored box has
};

// Parts of stored boxes that make up `wanted`. Stored boxes may overlap and repeat each other. If n of them make it up
// and no two overlap, there are n parts, found in O(n log n). kResourceExhausted: they overlap or leave holes so that
// there would be many more parts than boxes, or that finding these would take too long.
absl::StatusOr<BoxPlan> PlanBox(const Box& wanted, std::span<const Box> stored);

// The boxes that hold `count` elements of a row-major tensor from element `first` on, in the elements' order: 2D - 1
// boxes or fewer for D dimensions. Precondition: the tensor has these elements.
std::vector<Box> BoxesOfRange(std::span<const int64_t> shape, uint64_t first, uint64_t count);

// The runs of bytes of `part` that are contiguous in both boxes, whose elements lie row-major: ascending offsets in
// `from` and in `to`, in bytes, and the length. Precondition: both boxes have all of `part`.
void ForEachRun(const Box& from, const Box& to, const Box& part, uint64_t element_bytes,
                absl::FunctionRef<void(uint64_t from_offset, uint64_t to_offset, uint64_t bytes)> visit);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_BOX_PLAN_H_
