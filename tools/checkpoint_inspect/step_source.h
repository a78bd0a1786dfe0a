// The tensors of the step that a command was given.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_STEP_SOURCE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_STEP_SOURCE_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/step_info.h"
#include "tools/checkpoint_inspect/command_line.h"
#include "tools/checkpoint_inspect/selector.h"
#include "tools/checkpoint_inspect/tensor_source.h"

namespace tidemark::inspect {

// The step that the selector stands for; errors as Resolve. `read` is called with it if it has files, and returns
// whether it could read them; if not, and a live trainer has put another attempt or another step in its place
// meanwhile, again with that one.
absl::StatusOr<StepInfo> ReadStep(const Invocation& invocation, const Selector& selector,
                                  absl::FunctionRef<absl::Status(const StepInfo&)> read);

struct StepSource {
  StepInfo info;
  std::unique_ptr<TensorSource> tensors;  // outlives the reader
};

// kOk: `*opened` is the step that the selector stands for. Where a live trainer puts another attempt in its place
// meanwhile, that one. Else the exit code for what was wrong, which has been told.
ExitCode OpenStepSource(const Invocation& invocation, const Selector& selector, StepSource* opened);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_STEP_SOURCE_H_
