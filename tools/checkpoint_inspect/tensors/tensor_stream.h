// Streams tensors through a bounded piece of memory: reads ahead while the caller works on what has been read.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_STREAM_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

// Entries of one source, in the order in which they are wanted.
struct Lane {
  const TensorSource* source = nullptr;
  std::vector<size_t> entries;
};

// The same elements of one item in every lane.
struct TensorBlock {
  size_t item = 0;             // into Lane::entries
  uint64_t first_element = 0;  // of the held box, row-major
  uint64_t elements = 0;
  bool last = false;                              // of the item
  std::vector<std::span<const std::byte>> bytes;  // one for each lane; gone when `visit` returns
};

// Item by item, and each from its first element to its last; an item without elements is one block. With two lanes it
// reads pairs of entries side by side: these have as many elements each. Blocks are aligned to 16 bytes. A call holds
// at most 2 * kStreamBytes and what the alignment takes, beside what decoding takes. kCancelled if Ctrl-C came
// (interrupt.h); else the first error of reading or of `visit`, which is called on this thread.
inline constexpr uint64_t kStreamBytes = 32 << 20;
absl::Status StreamTensors(std::span<const Lane> lanes,
                           absl::FunctionRef<absl::Status(const TensorBlock& block)> visit);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_STREAM_H_
