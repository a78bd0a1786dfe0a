#include "tools/checkpoint_inspect/tensors/tensor_operand.h"

#include <utility>

#include "fmt/format.h"

namespace tidemark::inspect {

absl::StatusOr<TensorOperand> ParseTensorOperand(std::string_view text) {
  if (text.ends_with(".safetensors") || text.ends_with(".safetensors.index.json")) {
    return TensorOperand{
        .kind = TensorOperand::Kind::kSafetensors, .selector = StepSelector::Latest(), .path = std::string(text)};
  }
  if (absl::StatusOr<StepSelector> selector = StepSelector::Parse(text); selector.ok()) {
    return TensorOperand{.kind = TensorOperand::Kind::kStep, .selector = *std::move(selector), .path = ""};
  }
  for (size_t at = text.find('@'); at != std::string_view::npos; at = text.find('@', at + 1)) {
    absl::StatusOr<StepSelector> selector = StepSelector::Parse(text.substr(at + 1));
    if (at == 0 || !selector.ok()) continue;
    return TensorOperand{.kind = TensorOperand::Kind::kStepElsewhere,
                         .selector = *std::move(selector),
                         .path = std::string(text.substr(0, at))};
  }
  return absl::InvalidArgumentError(fmt::format("'{}' is not {}; a step is {}", text, kOperandHelp, kSelectorHelp));
}

}  // namespace tidemark::inspect
