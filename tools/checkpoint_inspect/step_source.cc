#include "tools/checkpoint_inspect/step_source.h"

#include <utility>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/steps.h"

namespace tidemark::inspect {

absl::StatusOr<StepInfo> ReadStep(const Invocation& invocation, const Selector& selector,
                                  absl::FunctionRef<absl::Status(const StepInfo&)> read) {
  StoreReader& reader = invocation.reader;
  absl::StatusOr<StepInfo> info = Resolve(reader, invocation.directory, selector);
  for (int attempts = 0; attempts < kStepLookupsMax && info.ok() && HasFiles(*info); ++attempts) {
    if (read(*info).ok() || !reader.Refresh().ok()) break;
    const std::string attempt = info->attempt;
    info = Resolve(reader, invocation.directory, selector);
    if (info.ok() && info->attempt == attempt) break;
  }
  return info;
}

ExitCode OpenStepSource(const Invocation& invocation, const Selector& selector, StepSource* opened) {
  StoreReader& reader = invocation.reader;
  absl::StatusOr<std::unique_ptr<StepReader>> step;
  absl::StatusOr<StepInfo> info = ReadStep(invocation, selector, [&](const StepInfo& found) {
    step = reader.OpenStep(found.step);
    return step.status();
  });
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
