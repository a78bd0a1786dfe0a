// The tensors of the step that a command was given.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_STEP_SOURCE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_STEP_SOURCE_H_

#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/step_info.h"
#include "tidemark/step_reader.h"
#include "tools/checkpoint_inspect/cli/command_line.h"
#include "tools/checkpoint_inspect/cli/selector.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

// As Resolve. `read` is called with it if it has files, and returns whether it could read them; if not, and a live
// trainer has put another attempt or another step in its place meanwhile, again with that one.
absl::StatusOr<StepInfo> ReadStep(const Invocation& invocation, const StepSelector& selector,
                                  absl::FunctionRef<absl::Status(const StepInfo&)> read,
                                  StepPredicate usable = IsAnyStep);

struct StepSource {
  StepInfo info;
  std::unique_ptr<TensorSource> tensors;  // outlives the reader
};

// What is said where a step is damaged.
struct DamageAdvice {
  bool elsewhere = false;         // the step is of another store than the one that the command line names
  std::string_view way_out = "";  // behind "'verify 900' lists what is damaged", where some of it can be read
};

// kOk: `*opened` is the step that the selector stands for. Where a live trainer puts another attempt in its place
// meanwhile, that one. Else the exit code for what was wrong, which has been told.
ExitCode OpenStepSource(const Invocation& invocation, const StepSelector& selector, StepSource* opened,
                        const DamageAdvice& advice = {}, StepView view = StepView::kParts);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_STEP_SOURCE_H_
