#include "tools/checkpoint_inspect/tensors/step_source.h"

#include <utility>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands/steps.h"

namespace tidemark::inspect {

absl::StatusOr<StepInfo> ReadStep(const Invocation& invocation, const StepSelector& selector,
                                  absl::FunctionRef<absl::Status(const StepInfo&)> read, StepPredicate usable) {
  StoreReader& reader = invocation.reader;
  absl::StatusOr<StepInfo> info = Resolve(reader, invocation.directory, selector, usable);
  for (int attempts = 0; attempts < kStepLookupsMax && info.ok() && HasFiles(*info); ++attempts) {
    if (read(*info).ok() || !reader.Refresh().ok()) break;
    const std::string attempt = info->attempt;
    info = Resolve(reader, invocation.directory, selector, usable);
    if (info.ok() && info->attempt == attempt) break;
  }
  return info;
}

ExitCode OpenStepSource(const Invocation& invocation, const StepSelector& selector, StepSource* opened,
                        const DamageAdvice& advice, StepView view) {
  StoreReader& reader = invocation.reader;
  absl::StatusOr<std::unique_ptr<StepReader>> step;
  const auto open = [&](const StepInfo& found) {
    step = reader.OpenStep(found.step, view);
    return step.status();
  };
  absl::StatusOr<StepInfo> info = ReadStep(invocation, selector, open, IsOnDisk);
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
  const std::string store = advice.elsewhere ? fmt::format("--store {} ", invocation.directory) : "";
  const std::string verify = fmt::format("; '{}verify {}' lists what is damaged", store, info->step);
  if (!step.ok()) {
    const std::string_view said = absl::IsDataLoss(step.status()) ? verify : std::string_view();
    const bool lost = info->state == StepState::kLost && !info->reason.empty();
    invocation.console.Fail(lost ? fmt::format("step {} is lost: {}", info->step, info->reason)
                                 : fmt::format("{}{}", std::string(step.status().message()), said));
    return StepExitCode(step.status());
  }
  opened->info = *std::move(info);
  opened->tensors =
      MakeStepSource(*std::move(step), fmt::format("step {} of {}", opened->info.step, invocation.directory),
                     fmt::format("{}{}", verify, advice.way_out));
  return ExitCode::kOk;
}

}  // namespace tidemark::inspect
