// TensorOperand: one of the two sides of a comparison, as the command line names it.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_OPERAND_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_OPERAND_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/checkpoint_inspect/cli/selector.h"

namespace tidemark::inspect {

struct TensorOperand {
  enum class Kind {
    kStep,           // "latest": a step of the store that the command was given
    kStepElsewhere,  // "other/ckpt@latest": one of the store in `path`
    kSafetensors,    // "model.safetensors", "model.safetensors.index.json": a file, or those that an index names
  };
  Kind kind = Kind::kStep;
  StepSelector selector = StepSelector::Latest();  // kStep, kStepElsewhere
  std::string path;                                // kStepElsewhere, kSafetensors

  friend bool operator==(const TensorOperand&, const TensorOperand&) = default;
};

// For --help and error messages.
inline constexpr std::string_view kOperandHelp =
    "a step of the store, DIR@STEP for one of the store in DIR, or a FILE.safetensors";

// A path and a metric may have an '@' in them: the directory ends at the first one behind which a step stands.
// kInvalidArgument: it is none of the above; the message says what there is.
absl::StatusOr<TensorOperand> ParseTensorOperand(std::string_view text);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_OPERAND_H_
