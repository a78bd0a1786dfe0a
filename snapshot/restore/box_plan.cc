#include "snapshot/restore/box_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "fmt/format.h"
#include "storage/shard/format/box_overlap.h"
#include "storage/shard/format/entry_names.h"

namespace tidemark {
namespace {

// Boxes that overlap without end would cut a tensor into as many parts as it has elements.
constexpr size_t kPartsMin = 1024;
constexpr size_t kPartsOfBoxMax = 64;
// How often a box that is left to cover is compared with a stored one.
constexpr uint64_t kComparisonsMin = 1 << 20;
constexpr uint64_t kComparisonsOfBoxMax = 64;

bool IsEmpty(const Box& box) {
  return std::ranges::any_of(box.extent, [](int64_t extent) { return extent <= 0; });
}

bool DoOverlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.extent.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    if (begin >= std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d])) return false;
  }
  return true;
}

// Whether all of `box` is before the first index that `next` has of the first dimension.
bool IsBefore(const Box& box, const Box& next) {
  return !box.extent.empty() && box.offset.front() + box.extent.front() <= next.offset.front();
}

// Appends boxes that together are `box` without `taken`. Precondition: `taken` is a part of `box`.
void Subtract(Box box, const Box& taken, std::vector<Box>& left) {
  for (size_t d = 0; d < box.extent.size(); ++d) {
    const int64_t begin = box.offset[d];
    const int64_t end = begin + box.extent[d];
    const int64_t taken_end = taken.offset[d] + taken.extent[d];
    const auto keep = [&](int64_t from, int64_t to) {
      if (from == to) return;
      Box part = box;
      part.offset[d] = from;
      part.extent[d] = to - from;
      left.push_back(std::move(part));
    };
    keep(begin, taken.offset[d]);
    keep(taken_end, end);
    box.offset[d] = taken.offset[d];
    box.extent[d] = taken.extent[d];
  }
}

// The count of elements. Precondition: it is less than 2^64.
uint64_t ElementsOf(const Box& box) {
  uint64_t elements = 1;
  for (const int64_t extent : box.extent) elements *= static_cast<uint64_t>(extent);
  return elements;
}

// Whether the boxes, each within `wanted`, make it up and no two overlap. Of very many boxes that lie like woven rods
// the answer may be no although they do.
bool AreTilesOf(const Box& wanted, std::span<const BoxPart> parts) {
  uint64_t elements = 0;
  std::vector<EntrySpec> specs;
  for (const BoxPart& part : parts) {
    const uint64_t more = ElementsOf(part.box);
    if (more > ElementsOf(wanted) - elements) return false;
    elements += more;
    specs.push_back({.shape = wanted.extent, .box_offset = part.box.offset, .box_extent = part.box.extent});
  }
  if (elements != ElementsOf(wanted)) return false;
  std::vector<const EntrySpec*> boxes;
  for (const EntrySpec& spec : specs) boxes.push_back(&spec);
  return std::holds_alternative<storage::AllApart>(storage::FindOverlap(boxes));
}

// How many elements of a row-major tensor one index of dimension `d` has.
uint64_t ElementsBehind(std::span<const int64_t> shape, size_t d) {
  uint64_t elements = 1;
  for (size_t i = d + 1; i < shape.size(); ++i) elements *= static_cast<uint64_t>(shape[i]);
  return elements;
}

// Appends boxes of `count` elements, from the element `first` of `within` on. Precondition: `within` has extent 1 in
// each dimension before `d`, and all of the tensor in the others.
void AddBoxesOfRange(std::span<const int64_t> shape, size_t d, const Box& within, uint64_t first, uint64_t count,
                     std::vector<Box>& boxes) {
  if (count == 0) return;
  if (d == shape.size()) return boxes.push_back(within);
  const uint64_t row = ElementsBehind(shape, d);
  const auto one_row = [&](uint64_t index, uint64_t from, uint64_t elements) {
    Box part = within;
    part.offset[d] = static_cast<int64_t>(index);
    part.extent[d] = 1;
    AddBoxesOfRange(shape, d + 1, part, from, elements, boxes);
  };
  uint64_t index = first / row;
  if (const uint64_t from = first % row; from != 0) {
    const uint64_t elements = std::min(count, row - from);
    one_row(index++, from, elements);
    count -= elements;
  }
  if (const uint64_t rows = count / row; rows > 0) {
    Box part = within;
    part.offset[d] = static_cast<int64_t>(index);
    part.extent[d] = static_cast<int64_t>(rows);
    boxes.push_back(std::move(part));
    index += rows;
    count -= rows * row;
  }
  if (count > 0) one_row(index, 0, count);
}

}  // namespace

Box WholeBox(std::span<const int64_t> shape) {
  return {.offset = std::vector<int64_t>(shape.size(), 0), .extent = {shape.begin(), shape.end()}};
}

Box HeldBox(const EntrySpec& spec) {
  return spec.whole() ? WholeBox(spec.shape) : Box{.offset = spec.box_offset, .extent = spec.box_extent};
}

std::string DescribeBox(const Box& box) { return storage::DescribeBox(box.offset, box.extent); }

std::optional<Box> Overlap(const Box& a, const Box& b) {
  Box both = a;
  for (size_t d = 0; d < a.extent.size(); ++d) {
    both.offset[d] = std::max(a.offset[d], b.offset[d]);
    both.extent[d] = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]) - both.offset[d];
  }
  if (IsEmpty(both)) return std::nullopt;
  return both;
}

absl::StatusOr<BoxPlan> PlanBox(const Box& wanted, std::span<const Box> stored) {
  BoxPlan plan;
  if (IsEmpty(wanted)) return plan;
  // Sorted by their corners. Then what is left to cover stays few boxes if the stored boxes are a grid.
  std::vector<size_t> order;
  for (size_t i = 0; i < stored.size(); ++i) {
    if (DoOverlap(wanted, stored[i])) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return stored[a].offset < stored[b].offset; });
  // What was saved once needs no cutting, however its boxes lie.
  for (const size_t source : order) plan.parts.push_back({.source = source, .box = *Overlap(wanted, stored[source])});
  if (!wanted.extent.empty() && AreTilesOf(wanted, plan.parts)) return plan;
  plan.parts.clear();
  std::vector<Box> left = {wanted};
  uint64_t comparisons = 0;
  const auto cut_too_often = [&] {
    return absl::ResourceExhaustedError(fmt::format(
        "{} boxes, which overlap or leave holes, cut {} into too many parts", stored.size(), DescribeBox(wanted)));
  };
  for (const size_t source : order) {
    std::vector<Box> next;
    comparisons += left.size();
    if (comparisons > kComparisonsMin + kComparisonsOfBoxMax * stored.size()) return cut_too_often();
    for (Box& box : left) {
      // The boxes that are still to come begin where this one does, or behind it.
      if (IsBefore(box, stored[source])) {
        plan.missing.push_back(std::move(box));
        continue;
      }
      std::optional<Box> both = Overlap(box, stored[source]);
      if (!both) {
        next.push_back(std::move(box));
        continue;
      }
      Subtract(std::move(box), *both, next);
      plan.parts.push_back({.source = source, .box = *std::move(both)});
    }
    left = std::move(next);
    if (left.empty()) break;
    if (plan.parts.size() + plan.missing.size() + left.size() > kPartsMin + kPartsOfBoxMax * stored.size()) {
      return cut_too_often();
    }
  }
  std::ranges::move(left, std::back_inserter(plan.missing));
  return plan;
}

std::vector<Box> BoxesOfRange(std::span<const int64_t> shape, uint64_t first, uint64_t count) {
  std::vector<Box> boxes;
  AddBoxesOfRange(shape, 0, WholeBox(shape), first, count, boxes);
  return boxes;
}

void ForEachRun(const Box& from, const Box& to, const Box& part, uint64_t element_bytes,
                absl::FunctionRef<void(uint64_t, uint64_t, uint64_t)> visit) {
  const size_t dimensions = part.extent.size();
  if (IsEmpty(part)) return;
  // A run has all indices of the dimensions behind `first`, because these have the same extent in all three boxes.
  size_t first = dimensions == 0 ? 0 : dimensions - 1;
  while (first > 0 && part.extent[first] == from.extent[first] && part.extent[first] == to.extent[first]) --first;
  uint64_t run = element_bytes;
  for (size_t d = first; d < dimensions; ++d) run *= static_cast<uint64_t>(part.extent[d]);
  const auto offset_in = [&](const Box& box, std::span<const int64_t> index) {
    uint64_t elements = 0;
    for (size_t d = 0; d < dimensions; ++d) {
      elements = elements * static_cast<uint64_t>(box.extent[d]) + static_cast<uint64_t>(index[d] - box.offset[d]);
    }
    return elements * element_bytes;
  };
  std::vector<int64_t> index = part.offset;
  for (;;) {
    visit(offset_in(from, index), offset_in(to, index), run);
    size_t d = first;
    while (d > 0 && ++index[d - 1] == part.offset[d - 1] + part.extent[d - 1]) {
      index[d - 1] = part.offset[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

}  // namespace tidemark
