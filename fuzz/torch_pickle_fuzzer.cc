// The pickle of a file that torch.save wrote, as ReadTorchFile reads it. What it finds refers to nothing outside.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "snapshot/exchange/torch_pickle.h"

namespace tidemark::fuzz {
namespace {

// A byte may become a node of 88 bytes, in a vector that grows.
constexpr size_t kBudgetFactor = 8;

void TryPickle(std::string_view bytes) {
  const absl::StatusOr<Pickle> pickle = ReadPickle(bytes);
  if (!pickle.ok()) {
    return Require(absl::IsDataLoss(pickle.status()) || absl::IsUnimplemented(pickle.status()),
                   "a pickle is refused for another reason than damage or an instruction that is not supported");
  }
  const size_t count = pickle->nodes.size();
  Require(pickle->root < count, "the root is no node");
  for (const PickleNode& node : pickle->nodes) {
    for (const size_t item : node.items) Require(item < count, "an item is no node");
    Require(node.callee < count && node.arguments < count, "a call refers to no node");
    Require(!node.state || *node.state < count, "a state is no node");
  }
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tidemark::fuzz::AllocationBudget budget(size * tidemark::fuzz::kBudgetFactor);
  tidemark::fuzz::TryPickle({reinterpret_cast<const char*>(data), size});
  return 0;
}
