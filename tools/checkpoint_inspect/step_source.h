// The tensors of the step that a command was given.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_STEP_SOURCE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_STEP_SOURCE_H_

#include <memory>

#include "tidemark/step_info.h"
#include "tools/checkpoint_inspect/command_line.h"
#include "tools/checkpoint_inspect/selector.h"
#include "tools/checkpoint_inspect/tensor_source.h"

namespace tidemark::inspect {

struct StepSource {
  StepInfo info;
  std::unique_ptr<TensorSource> tensors;  // outlives the reader
};

// kOk: `*opened` is the step that the selector stands for. Where a live trainer puts another attempt in its place
// meanwhile, that one. Else the exit code for what was wrong, which has been told.
ExitCode OpenStepSource(const Invocation& invocation, const Selector& selector, StepSource* opened);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_STEP_SOURCE_H_
