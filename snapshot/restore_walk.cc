#include "snapshot/restore_walk.h"

#include <limits>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/manifest/attempt_reader.h"

namespace tidemark {
namespace {

// Whether a restore can have anything to do with the step: one that retention let go, or that was never to be saved, is
// none that was missed.
bool IsOrWasToBeRestored(StepState state) { return state != StepState::kDeleted && state != StepState::kUnsaved; }

}  // namespace

void RestoreWalk::Mark(const storage::StepRecord& record, StepState state, std::string_view reason) {
  const absl::Status marked = store_.MarkStep(record.info.step, record.info.attempt, state, reason);
  if (!marked.ok()) warn_(fmt::format("that could not be recorded: {}", std::string(marked.message())));
}

void RestoreWalk::WarnOfResets(const RestoreResult& result) {
  for (const std::string& prefix : result.reset) {
    warn_(fmt::format("companion '{}' begins anew: step {} has no entries of it", prefix, result.report.step));
  }
}

// Restores from `record`; a device error is given a second chance, and damage is recorded.
RestoreResult RestoreWalk::Try(const storage::StepRecord& record, State& state, const RestoreOptions& options) {
  RestoreResult result = RestoreAttempt(source(), record, state, options);
  if (result.cause == RestoreResult::Cause::kDevice && absl::IsInternal(result.status)) {
    warn_(fmt::format("step {} is read once more after: {}", record.info.step, std::string(result.status.message())));
    result = RestoreAttempt(source(), record, state, options);
  }
  if (result.cause == RestoreResult::Cause::kNone || result.cause == RestoreResult::Cause::kState) return result;
  damage_seen_();
  if (result.cause == RestoreResult::Cause::kDevice) return result;
  const StepState verdict = absl::IsNotFound(result.status) ? StepState::kLost : StepState::kDamaged;
  warn_(
      fmt::format("step {} is {}: {}", record.info.step, StepStateName(verdict), std::string(result.status.message())));
  Mark(record, verdict, std::string(result.status.message()));
  result.status = absl::DataLossError(std::string(result.status.message()));
  return result;
}

// A step that was found damaged or lost, and is asked for by name: perhaps it was a bad cable, or its disk is back.
// Every byte must verify before the mark is taken back.
absl::Status RestoreWalk::Reexamine(storage::StepRecord& record) {
  absl::StatusOr<storage::Attempt> attempt = OpenRecorded(source(), record);
  absl::Status sound = attempt.status();
  if (sound.ok()) {
    const auto id = storage::FromHex(record.info.attempt);
    sound =
        storage::VerifyAndSync(files_, store_.layout(), {record.info.step, storage::AttemptId{*id}}, *attempt, read_);
  }
  if (!sound.ok()) {
    damage_seen_();
    return absl::DataLossError(
        fmt::format("step {} is {}: {}", record.info.step, StepStateName(record.info.state), record.info.reason));
  }
  warn_(fmt::format("step {} is sound again; it was {}", record.info.step, StepStateName(record.info.state)));
  record.info.state = StepState::kCommitted;
  record.info.reason.clear();
  Mark(record, StepState::kCommitted, "");
  return absl::OkStatus();
}

// Empty where nobody wants to know.
std::string RestoreWalk::WhyUnhealthy(const StepInfo& info, const RestoreOptions& options) const {
  return options.healthy_only ? why_unhealthy_(info) : "";
}

// Notes why, where it does.
bool RestoreWalk::PassesOver(const StepInfo& info, const RestoreOptions& options) {
  if (options.accept && !options.accept(info)) {
    passed_over_.emplace_back(info.step, "not accepted by RestoreOptions::accept");
    return true;
  }
  if (info.state != StepState::kCommitted) {
    found_damage_ = found_damage_ || info.state != StepState::kFailed;
    passed_over_.emplace_back(info.step, fmt::format("{}: {}", StepStateName(info.state), info.reason));
    return true;
  }
  if (const std::string why = WhyUnhealthy(info, options); !why.empty()) {
    passed_over_.emplace_back(info.step, fmt::format("unhealthy: {}", why));
    return true;
  }
  return false;
}

absl::Status RestoreWalk::NothingToRestore() const {
  std::string reasons;
  for (const auto& [step, reason] : passed_over_) reasons += fmt::format("\n  step {}: {}", step, reason);
  const std::string& directory = store_.layout().directory();
  if (found_damage_) {
    return absl::DataLossError(fmt::format(
        "no step of {0} can be restored (`checkpoint-inspect --store {0} verify` looks again, `repair` says "
        "what can be done):{1}",
        directory, reasons));
  }
  return absl::NotFoundError(fmt::format("no step to restore in {}{}", directory, reasons));
}

absl::StatusOr<RestoreReport> RestoreWalk::Latest(State& state, const RestoreOptions& options) {
  for (int64_t at_most = std::numeric_limits<int64_t>::max(); at_most >= 0;) {
    absl::StatusOr<std::optional<storage::StepRecord>> record = store_.manifest().FindAtOrBelow(at_most);
    if (!record.ok()) return record.status();
    if (!record->has_value()) break;
    const StepInfo& info = (*record)->info;
    at_most = info.step - 1;
    if (!IsOrWasToBeRestored(info.state) || PassesOver(info, options)) continue;
    RestoreResult result = Try(**record, state, options);
    const bool may_fall_back = result.cause == RestoreResult::Cause::kCheckpoint ||
                               (result.cause == RestoreResult::Cause::kDevice && absl::IsInternal(result.status));
    if (may_fall_back) {
      found_damage_ = true;
      half_written_.insert(result.written.begin(), result.written.end());
      passed_over_.emplace_back(info.step, std::string(result.status.message()));
      if (result.cause == RestoreResult::Cause::kDevice) {
        warn_(fmt::format("step {} is passed over: {}", info.step, std::string(result.status.message())));
      }
      continue;
    }
    if (result.status.ok()) {
      for (const std::string& name : result.written) half_written_.erase(name);
    }
    if (!half_written_.empty()) {
      return absl::DataLossError(fmt::format(
          "{}, and these tensors hold parts of a newer step that turned out damaged: {}",
          result.status.ok() ? fmt::format("step {} was restored", info.step) : std::string(result.status.message()),
          fmt::join(half_written_, ", ")));
    }
    if (!result.status.ok()) return result.status;
    WarnOfResets(result);
    result.report.passed_over = std::move(passed_over_);
    return std::move(result.report);
  }
  return NothingToRestore();
}

absl::StatusOr<RestoreReport> RestoreWalk::At(int64_t step, State& state, const RestoreOptions& options) {
  absl::StatusOr<std::optional<storage::StepRecord>> record = store_.manifest().Find(step);
  if (!record.ok()) return record.status();
  const std::string& directory = store_.layout().directory();
  if (!record->has_value() || (*record)->info.state == StepState::kFailed) {
    return absl::NotFoundError(fmt::format("step {} is not committed in {}", step, directory));
  }
  const StepInfo& info = (*record)->info;
  if (!IsOrWasToBeRestored(info.state)) {
    return absl::NotFoundError(
        fmt::format("step {} is not committed in {}: {}, {}", step, directory, StepStateName(info.state), info.reason));
  }
  if (options.accept && !options.accept(info)) {
    return absl::NotFoundError(fmt::format("step {} is not accepted by RestoreOptions::accept", step));
  }
  if (const std::string why = WhyUnhealthy(info, options); !why.empty()) {
    return absl::NotFoundError(fmt::format("step {} is unhealthy: {}", step, why));
  }
  if (info.state != StepState::kCommitted) {
    if (absl::Status status = Reexamine(**record); !status.ok()) return status;
  }
  RestoreResult result = Try(**record, state, options);
  if (!result.status.ok()) return result.status;
  WarnOfResets(result);
  return std::move(result.report);
}

}  // namespace tidemark
