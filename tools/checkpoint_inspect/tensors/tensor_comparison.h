// Compares the entries of two sources: by what the indices say of them, and number by number.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_COMPARISON_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "tidemark/step_reader.h"
#include "tools/checkpoint_inspect/tensors/tensor_change.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

enum class Difference {
  kSame,
  kRemoved,          // only A has it
  kAdded,            // only B has it
  kHeldDifferently,  // ranks hold other boxes of it; whether it is the same as a whole is not looked at
  kChanged,
};

// "same", "removed", "added", "held differently", "changed"
std::string_view DifferenceName(Difference difference);

// Into a source's entries.
using EntryNumbers = absl::InlinedVector<size_t, 1>;

// One name; where ranks hold parts of it, one part that both sides hold. There are as many as entries, so it holds no
// copy of what the sources have.
struct EntryComparison {
  std::string_view name;  // lies in an entry of a source
  Difference difference = Difference::kSame;
  // One each where they were compared; all that hold any of it for kHeldDifferently.
  EntryNumbers a;
  EntryNumbers b;
  // kChanged: in what.
  bool kind_differs = false;
  bool dtype_differs = false;
  bool shape_differs = false;
  bool bytes_differ = false;  // of the same dtype and shape
  // Of those with the same shape and comparable numbers, once they have been read; else null.
  std::unique_ptr<TensorChange> change;
};

// Pairs the entries whose names match `glob`, all if it is empty, and compares kinds, dtypes and shapes. In the order
// in which A has them, those that only B has behind.
std::vector<EntryComparison> MatchEntries(std::span<const StoredEntry> a, std::span<const StoredEntry> b,
                                          std::string_view glob);

// Reads what must be read to know whether entries with the same shape are the same, and how far they are apart: none
// of those with the same digest. Pairs with the same bytes as another pair are read once. `progress` hears, on this
// thread, which entry is being read and how many bytes of how many have been. Errors as of StreamTensors.
absl::Status CompareTensors(const TensorSource& a, const TensorSource& b, std::vector<EntryComparison>& entries,
                            const std::function<void(std::string_view name, uint64_t done, uint64_t total)>& progress);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_COMPARISON_H_
