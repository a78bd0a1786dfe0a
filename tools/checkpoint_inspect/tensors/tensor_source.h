// TensorSource: named entries whose bytes can be read in pieces, wherever they lie.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_SOURCE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_SOURCE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tidemark/step_reader.h"

namespace tidemark::inspect {

// Immutable and thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // For people: "step 1000 of run/ckpt".
  virtual const std::string& name() const = 0;

  // An entry whose digest is empty has bytes that nobody knows before they are read. Names may come more than once,
  // held by different ranks.
  virtual std::span<const StoredEntry> entries() const = 0;

  // As StepReader::Read.
  virtual absl::Status Read(std::span<const StepReader::Window> windows) const = 0;

  // Windows that begin and end at multiples of this have nothing read twice. At least 1.
  virtual uint64_t chunk_bytes() const = 0;
};

// Reading it is kAborted where a trainer has let the step go meanwhile, and a file of another one that it takes.
// `advice` is said behind a kDataLoss.
std::unique_ptr<TensorSource> MakeStepSource(std::unique_ptr<StepReader> step, std::string name,
                                             std::string advice = "");

// An entry and all of its bytes.
struct MemoryEntry {
  EntrySpec spec;
  std::vector<std::byte> bytes;
};

std::unique_ptr<TensorSource> MakeMemorySource(std::vector<MemoryEntry> entries, std::string name);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_SOURCE_H_
