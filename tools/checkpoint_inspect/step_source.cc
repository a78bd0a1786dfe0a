#include "tools/checkpoint_inspect/step_source.h"

#include <utility>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/steps.h"

namespace tidemark::inspect {
namespace {

// How often a step is looked up again because its files went away meanwhile.
constexpr int kAttemptsMax = 4;

}  // namespace

ExitCode OpenStepSource(const Invocation& invocation, const Selector& selector, StepSource* opened) {
  StoreReader& reader = invocation.reader;
  absl::StatusOr<StepInfo> info = Resolve(reader, invocation.directory, selector);
  absl::StatusOr<std::unique_ptr<StepReader>> step = absl::CancelledError();
  for (int attempts = 0; attempts < kAttemptsMax && info.ok() && HasFiles(*info); ++attempts) {
    step = reader.OpenStep(info->step);
    if (step.ok() || !reader.Refresh().ok()) break;
    // A live trainer may have put another attempt in the step's place, whose files are there.
    const std::string attempt = info->attempt;
    info = Resolve(reader, invocation.directory, selector);
    if (info.ok() && info->attempt == attempt) break;
  }
  if (!info.ok()) {
    invocation.console.Fail(info.status());
    return SelectorExitCode(reader, info.status());
  }
  if (!HasFiles(*info)) {
    const bool was_deleted = info->state == StepState::kDeleted;
    invocation.console.Fail(fmt::format("step {} {}{}{}", info->step,
                                        was_deleted ? "was deleted" : "was never committed",
                                        info->reason.empty() ? "" : ": ", info->reason));
    return ExitCode::kFailure;
  }
  if (!step.ok()) {
    invocation.console.Fail(step.status());
    return StepExitCode(step.status());
  }
  opened->info = *std::move(info);
  opened->tensors =
      MakeStepSource(*std::move(step), fmt::format("step {} of {}", opened->info.step, invocation.directory));
  return ExitCode::kOk;
}

}  // namespace tidemark::inspect
