#include "tidemark/preemption_guard.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "snapshot/termination_signal.h"

namespace tidemark {
namespace {

std::atomic<bool> guard_is_installed = false;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

std::string PreemptionReport::Describe() const {
  std::string line = fmt::format("preempted: step {} is {}", step, committed() ? "committed" : "not committed: ");
  if (!committed()) line += Text(save);
  if (!close.ok()) line += fmt::format("; {}", Text(close));
  return line;
}

PreemptionGuard::PreemptionGuard(PreemptionOptions options, std::unique_ptr<TerminationSignal> asked)
    : options_(std::move(options)), asked_(std::move(asked)) {}

absl::StatusOr<std::unique_ptr<PreemptionGuard>> PreemptionGuard::Install(PreemptionOptions options) {
  if (options.grace < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        fmt::format("PreemptionOptions::grace is {}: 0 or more", absl::FormatDuration(options.grace)));
  }
  if (guard_is_installed.exchange(true)) {
    return absl::FailedPreconditionError("a preemption guard is installed in this process already");
  }
  absl::StatusOr<std::unique_ptr<TerminationSignal>> asked = TerminationSignal::Install(options.signals);
  if (!asked.ok()) {
    guard_is_installed = false;
    return asked.status();
  }
  return std::unique_ptr<PreemptionGuard>(new PreemptionGuard(std::move(options), *std::move(asked)));
}

PreemptionGuard::~PreemptionGuard() { guard_is_installed = false; }

bool PreemptionGuard::preempted() const {
  if (asked_->received()) return true;
  return options_.end != absl::InfiniteFuture() && absl::Now() >= options_.end - options_.grace;
}

absl::Time PreemptionGuard::deadline() const {
  if (!preempted()) return absl::InfiniteFuture();
  const std::optional<absl::Time> asked = asked_->received_at();
  return asked ? std::min(*asked + options_.grace, options_.end) : options_.end;
}

PreemptionReport PreemptionGuard::SaveAndClose(AsyncCheckpointer& checkpointer, int64_t step, State& state,
                                               SaveOptions options) {
  const absl::Time by = deadline();
  options.persist = true;
  if (!options.staging) options.staging = Staging::kBlocking;
  PreemptionReport report{.step = step};
  // Save refuses to go on past a failure that nobody has looked at, and there will be no other one.
  absl::Status earlier = checkpointer.CheckForErrors();
  absl::StatusOr<SaveHandle> save = checkpointer.Save(step, state, options);
  if (absl::IsAlreadyExists(save.status())) {
    report.save = checkpointer.Committed(step).WaitUntil(by);
    // It was being saved, and that has failed.
    if (!report.save.ok() && !absl::IsDeadlineExceeded(report.save)) save = checkpointer.Save(step, state, options);
  }
  if (save.ok()) {
    report.save = save->committed().WaitUntil(by);
  } else if (!absl::IsAlreadyExists(save.status())) {
    report.save = save.status();
  }
  report.close = checkpointer.Close(by);
  // Close knows what was in the way.
  if (absl::IsDeadlineExceeded(report.save)) {
    report.save = absl::DeadlineExceededError(
        fmt::format("step {} was not committed by {}", step, absl::FormatTime(by, absl::UTCTimeZone())));
  }
  if (report.close.ok()) report.close = std::move(earlier);
  return report;
}

}  // namespace tidemark
