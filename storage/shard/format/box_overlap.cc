#include "storage/shard/format/box_overlap.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace tidemark::storage {
namespace {

using Numbers = std::vector<size_t>;

// Of so many boxes each is compared with each.
constexpr size_t kComparedMax = 32;

// How many boxes may wait in sets that are not cut yet, for each of all boxes. Without boxes that are cut in two it is
// one.
constexpr size_t kWaitingMax = 4;

// How often boxes are looked at.
constexpr uint64_t LooksMax(size_t boxes) { return boxes * (64 + 4 * static_cast<uint64_t>(std::bit_width(boxes))); }
static_assert(LooksMax(kComparedMax) >= kComparedMax * (kComparedMax + 1) / 2,
              "so few boxes can each be looked at once, and compared with those before it");

int64_t End(const EntrySpec& box, size_t d) { return box.box_offset[d] + box.box_extent[d]; }

bool IsEmpty(const EntrySpec& box) {
  return std::find(box.box_extent.begin(), box.box_extent.end(), 0) != box.box_extent.end();
}

bool Overlap(const EntrySpec& a, const EntrySpec& b) {
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.box_offset[d] >= End(b, d) || b.box_offset[d] >= End(a, d)) return false;
  }
  return true;
}

// A plane. A box that it cuts in two is on both sides.
struct Cut {
  size_t dimension = 0;
  int64_t at = 0;
  size_t larger = 0;  // the number of boxes on the side that has more
};

// Cuts sets of boxes in two with planes until they are small. Boxes that overlap do so on one side of each plane.
class OverlapSearch {
 public:
  // None of the boxes `all` is empty.
  OverlapSearch(std::span<const EntrySpec* const> boxes, Numbers all) : boxes_(boxes), looks_(LooksMax(all.size())) {
    Push(std::move(all));
  }

  BoxOverlap Run() {
    while (!sets_.empty()) {
      const Numbers set = std::move(sets_.back());
      sets_.pop_back();
      waiting_ -= set.size();
      if (!Look(set.size()) || waiting_ > kWaitingMax * boxes_.size()) return NotToldApart();
      std::optional<Cut> cut;
      if (set.size() > kComparedMax) cut = FindCut(set);
      if (cut) {
        Divide(set, *cut);
      } else if (const BoxOverlap found = Compare(set); !std::holds_alternative<AllApart>(found)) {
        return found;
      }
    }
    return AllApart();
  }

 private:
  void Push(Numbers set) {
    waiting_ += set.size();
    sets_.push_back(std::move(set));
  }

  bool Look(uint64_t times) {
    if (times > looks_) return false;
    looks_ -= times;
    return true;
  }

  bool IsBelow(size_t box, const Cut& cut) const { return boxes_[box]->box_offset[cut.dimension] < cut.at; }
  bool IsAbove(size_t box, const Cut& cut) const { return End(*boxes_[box], cut.dimension) > cut.at; }

  // The best of two planes for each dimension; none if each has all boxes on one side.
  std::optional<Cut> FindCut(const Numbers& set) {
    Cut best{.larger = set.size()};
    for (size_t d = 0; d < boxes_[set.front()]->shape.size(); ++d) {
      values_.clear();
      for (const size_t box : set) values_.push_back(boxes_[box]->box_offset[d]);
      TryMedian(set, d, best);
      values_.clear();
      for (const size_t box : set) values_.push_back(End(*boxes_[box], d));
      TryMedian(set, d, best);
    }
    if (best.larger == set.size()) return std::nullopt;
    return best;
  }

  void TryMedian(const Numbers& set, size_t dimension, Cut& best) {
    const auto median = values_.begin() + static_cast<ptrdiff_t>(values_.size() / 2);
    std::nth_element(values_.begin(), median, values_.end());
    Cut cut{.dimension = dimension, .at = *median};
    size_t below = 0;
    size_t above = 0;
    for (const size_t box : set) {
      if (IsBelow(box, cut)) ++below;
      if (IsAbove(box, cut)) ++above;
    }
    cut.larger = std::max(below, above);
    if (cut.larger < best.larger) best = cut;
  }

  void Divide(const Numbers& set, const Cut& cut) {
    Numbers larger;
    Numbers smaller;
    for (const size_t box : set) {
      if (IsBelow(box, cut)) larger.push_back(box);
      if (IsAbove(box, cut)) smaller.push_back(box);
    }
    if (larger.size() < smaller.size()) std::swap(larger, smaller);
    // The smaller one is cut next, so that the sets that wait have few boxes.
    Push(std::move(larger));
    Push(std::move(smaller));
  }

  BoxOverlap Compare(const Numbers& set) {
    for (size_t i = 1; i < set.size(); ++i) {
      if (!Look(i)) return NotToldApart();
      for (size_t k = 0; k < i; ++k) {
        if (Overlap(*boxes_[set[i]], *boxes_[set[k]])) return std::minmax({set[i], set[k]});
      }
    }
    return AllApart();
  }

  const std::span<const EntrySpec* const> boxes_;
  uint64_t looks_;  // that are left
  std::vector<Numbers> sets_;
  size_t waiting_ = 0;  // boxes in these
  std::vector<int64_t> values_;
};

}  // namespace

BoxOverlap FindOverlap(std::span<const EntrySpec* const> boxes) {
  Numbers empty;
  Numbers full;
  for (size_t i = 0; i < boxes.size(); ++i) (IsEmpty(*boxes[i]) ? empty : full).push_back(i);
  const auto place = [&](size_t box) { return std::tie(boxes[box]->box_offset, boxes[box]->box_extent); };
  std::stable_sort(empty.begin(), empty.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  const auto same =
      std::adjacent_find(empty.begin(), empty.end(), [&](size_t a, size_t b) { return place(a) == place(b); });
  if (same != empty.end()) return std::pair(same[0], same[1]);
  return OverlapSearch(boxes, std::move(full)).Run();
}

}  // namespace tidemark::storage
