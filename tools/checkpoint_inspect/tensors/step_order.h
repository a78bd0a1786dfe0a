// StepOrder: which steps a listing has, and in which order.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_STEP_ORDER_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_STEP_ORDER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/step_info.h"

namespace tidemark::inspect {

struct StepOrder {
  enum class Key {
    kStep,    // "step": the highest last
    kAge,     // "age": the youngest last; those whose time is not known first
    kSize,    // "size": the most stored bytes last
    kMetric,  // "metric:NAME": the highest value last; those without the metric first, and then those where it is NaN
  };
  Key key = Key::kStep;
  std::string metric;  // kMetric

  friend bool operator==(const StepOrder&, const StepOrder&) = default;
};

// For --help and error messages.
inline constexpr std::string_view kStepOrderHelp = "step, age, size or metric:NAME";

// kInvalidArgument: it is none of the above; the message says what there is.
absl::StatusOr<StepOrder> ParseStepOrder(std::string_view text);

// Puts the steps, which are ascending by number, in order; equal ones stay ascending.
void Arrange(const StepOrder& order, std::vector<const StepInfo*>& steps);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_STEP_ORDER_H_
