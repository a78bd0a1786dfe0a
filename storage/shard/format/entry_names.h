// Which entries of a shard may have one name: boxes of one tensor that have no element in common. Most entries have a
// name of their own.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_ENTRY_NAMES_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_ENTRY_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "storage/shard/format/name_table.h"
#include "tidemark/entry.h"

namespace tidemark::storage {

// "[0:4, 2:3]"
std::string DescribeBox(std::span<const int64_t> offset, std::span<const int64_t> extent);

// An entry that may not be in a shard with an earlier one.
struct NameConflict {
  size_t entry = 0;
  size_t earlier = 0;
  bool is_of_boxes = false;  // both are boxes of tensors; else one name for what may have only one
  std::string why;           // "its box [0:2] overlaps with [1:3] of entry 3"
};

// The names of a shard's entries. Thread-compatible.
class EntryNames {
 public:
  // Room for so many names.
  void Reserve(size_t count) { first_.Reserve(count); }

  // Adds the name of the next entry, which is not owned and outlives this. True: no earlier entry has it.
  bool Add(std::string_view name);

  // Whether any name was added twice.
  bool repeats() const { return !repeated_.empty(); }

  // An entry that has the name of an earlier one, and may not. `spec_of` returns the valid spec of the entry with
  // that number. Takes no more time than some n log n comparisons of numbers: boxes that are not told apart in that
  // time are a conflict, too. Boxes of one grid always are told apart, and so are up to 32 boxes. Called once, after
  // all names were added.
  std::optional<NameConflict> FindConflict(absl::FunctionRef<const EntrySpec&(size_t)> spec_of);

 private:
  NameMap<size_t> first_;
  std::vector<std::pair<size_t, size_t>> repeated_;  // the first entry of a name, and another one
  size_t count_ = 0;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_ENTRY_NAMES_H_
