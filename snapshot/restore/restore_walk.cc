#include "snapshot/restore/restore_walk.h"

#include <deque>
#include <limits>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/ranks/ranked_restore.h"
#include "storage/io/exception_status.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/attempt_verify.h"

namespace tidemark {
namespace {

// Whether a restore can have anything to do with the step: one that retention let go, or that was never to be saved, is
// none that was missed.
bool IsOrWasToBeRestored(StepState state) { return state != StepState::kDeleted && state != StepState::kUnsaved; }

constexpr std::string_view kDeletedMeanwhile = "it was deleted or replaced meanwhile";

absl::StatusOr<bool> IsAccepted(const StepInfo& info, const RestoreOptions& options) {
  if (!options.accept) return true;
  try {
    return options.accept(info);
  } catch (...) {
    return storage::ExceptionStatus("RestoreOptions::accept");
  }
}

}  // namespace

void RestoreWalk::Mark(const storage::StepRecord& record, StepState state, std::string_view reason) {
  const absl::Status marked = catalog_->Mark(record, state, reason);
  if (!marked.ok()) warn_(fmt::format("that could not be recorded: {}", std::string(marked.message())));
}

void RestoreWalk::WarnOfResets(const RestoreResult& result) {
  for (const std::string& prefix : result.reset) {
    warn_(fmt::format("companion '{}' starts afresh: step {} has no entries of it", prefix, result.report.step));
  }
}

RestoreResult RestoreWalk::TryOnce(const storage::StepRecord& record, State& state, const RestoreOptions& options) {
  const auto here = [&](const storage::StepRecord& from) { return RestoreAttempt(source(), from, state, options); };
  return exchange_ != nullptr ? RestoreOnAllRanks(*exchange_, record, here) : here(record);
}

// Restores from `record`; a device error is given a second chance, and damage is recorded.
RestoreResult RestoreWalk::Try(const storage::StepRecord& record, State& state, const RestoreOptions& options) {
  RestoreResult result = TryOnce(record, state, options);
  if (result.cause == RestoreResult::Cause::kDevice && absl::IsInternal(result.status)) {
    warn_(fmt::format("step {} is read again after: {}", record.info.step, std::string(result.status.message())));
    result = TryOnce(record, state, options);
  }
  if (result.cause == RestoreResult::Cause::kNone || result.cause == RestoreResult::Cause::kState) return result;
  damage_seen_();
  if (result.cause == RestoreResult::Cause::kDevice) return result;
  if (result.is_of_other_rank) {
    // It may be that rank's machine. What this process can read is not marked.
    warn_(fmt::format("step {} is passed over: {}", record.info.step, std::string(result.status.message())));
    result.status = absl::DataLossError(std::string(result.status.message()));
    return result;
  }
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
  absl::Status sound = storage::CheckAttempt(files_, catalog_->layout(), catalog_->id(), record, {.read = read_});
  if (sound.ok()) sound = storage::SyncAttempt(files_, catalog_->layout(), record);
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

// If it does, notes the reason. kInternal, kResourceExhausted: RestoreOptions::accept threw.
absl::StatusOr<bool> RestoreWalk::PassesOver(const StepInfo& info, const RestoreOptions& options) {
  const absl::StatusOr<bool> is_accepted = IsAccepted(info, options);
  if (!is_accepted.ok()) return is_accepted.status();
  if (!*is_accepted) {
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
  const std::string& directory = catalog_->layout().directory();
  if (found_damage_) {
    return absl::DataLossError(
        fmt::format("no step of {0} can be restored (run `checkpoint-inspect --store {0} verify`, then `repair`):{1}",
                    directory, reasons));
  }
  return absl::NotFoundError(fmt::format("no step to restore in {}{}", directory, reasons));
}

absl::Status RestoreWalk::HoldingParts(std::string_view outcome) const {
  return absl::DataLossError(fmt::format("{}, and these entries hold parts of a newer, damaged step: {}", outcome,
                                         fmt::join(half_written_, ", ")));
}

absl::StatusOr<RestoreReport> RestoreWalk::Latest(State& state, const RestoreOptions& options) {
  int64_t at_most = 0;
  const auto next = [&](bool anew) -> absl::StatusOr<std::optional<storage::StepRecord>> {
    if (anew) at_most = std::numeric_limits<int64_t>::max();
    if (at_most < 0) return std::nullopt;
    absl::StatusOr<std::optional<storage::StepRecord>> record = catalog_->FindAtOrBelow(at_most);
    if (record.ok() && record->has_value()) at_most = (*record)->info.step - 1;
    return record;
  };
  return Walk(next, state, options);
}

absl::StatusOr<RestoreReport> RestoreWalk::Selected(const StepSelector& selector,
                                                    absl::FunctionRef<absl::StatusOr<std::vector<StepInfo>>()> steps,
                                                    State& state, const RestoreOptions& options) {
  switch (selector.kind()) {
    case StepSelector::Kind::kLatest:
      return Latest(state, options);
    case StepSelector::Kind::kLatestHealthy: {
      RestoreOptions healthy = options;
      healthy.healthy_only = true;
      return Latest(state, healthy);
    }
    case StepSelector::Kind::kStep:
      return At(selector.step(), state, options);
    case StepSelector::Kind::kBest:
    case StepSelector::Kind::kTag:
      break;
  }
  std::deque<int64_t> numbers;
  const auto next = [&](bool anew) -> absl::StatusOr<std::optional<storage::StepRecord>> {
    if (anew) {
      const absl::StatusOr<std::vector<StepInfo>> all = steps();
      if (!all.ok()) return all.status();
      const absl::StatusOr<std::vector<const StepInfo*>> chosen = selector.Choose(*all);
      // None is left of those that were tried.
      if (!chosen.ok() && absl::IsNotFound(chosen.status()) && !tried_.empty()) return std::nullopt;
      if (!chosen.ok()) return chosen.status();
      numbers.clear();
      for (const StepInfo* info : *chosen) numbers.push_back(info->step);
    }
    while (!numbers.empty()) {
      absl::StatusOr<std::optional<storage::StepRecord>> record = catalog_->Find(numbers.front());
      numbers.pop_front();
      if (!record.ok() || record->has_value()) return record;
    }
    return std::nullopt;
  };
  return Walk(next, state, options);
}

absl::StatusOr<RestoreReport> RestoreWalk::Walk(Next next, State& state, const RestoreOptions& options) {
  bool anew = true;
  for (;;) {
    absl::StatusOr<std::optional<storage::StepRecord>> record = next(std::exchange(anew, false));
    if (!record.ok()) return record.status();
    if (!record->has_value()) break;
    const StepInfo& info = (*record)->info;
    if (!IsOrWasToBeRestored(info.state)) continue;
    if (!tried_.emplace(info.step, info.attempt).second) continue;
    const absl::StatusOr<bool> passes_over = PassesOver(info, options);
    if (!passes_over.ok()) {
      if (half_written_.empty()) return passes_over.status();
      return HoldingParts(std::string(passes_over.status().message()));
    }
    if (*passes_over) continue;
    const absl::StatusOr<bool> held = catalog_->Hold(**record);
    if (!held.ok()) return held.status();
    if (!*held) {
      anew = true;
      passed_over_.emplace_back(info.step, kDeletedMeanwhile);
      continue;
    }
    RestoreResult result = Try(**record, state, options);
    const bool may_fall_back = result.cause == RestoreResult::Cause::kCheckpoint ||
                               (result.cause == RestoreResult::Cause::kDevice && absl::IsInternal(result.status));
    if (may_fall_back) {
      half_written_.insert(result.written.begin(), result.written.end());
      // Without a lease its files may have been deleted while they were read.
      const absl::StatusOr<bool> still_held = catalog_->Hold(**record);
      if (still_held.ok() && !*still_held) {
        anew = true;
        passed_over_.emplace_back(info.step, kDeletedMeanwhile);
        continue;
      }
      found_damage_ = true;
      passed_over_.emplace_back(info.step, std::string(result.status.message()));
      if (result.cause == RestoreResult::Cause::kDevice) {
        warn_(fmt::format("step {} is skipped: {}", info.step, std::string(result.status.message())));
      }
      continue;
    }
    if (result.status.ok()) {
      for (const std::string& name : result.written) half_written_.erase(name);
      for (const std::string& name : result.values) half_written_.erase(name);
    }
    if (!half_written_.empty()) {
      return HoldingParts(result.status.ok() ? fmt::format("step {} was restored", info.step)
                                             : std::string(result.status.message()));
    }
    if (!result.status.ok()) return result.status;
    WarnOfResets(result);
    result.report.passed_over = std::move(passed_over_);
    return std::move(result.report);
  }
  return NothingToRestore();
}

absl::StatusOr<RestoreReport> RestoreWalk::At(int64_t step, State& state, const RestoreOptions& options) {
  absl::StatusOr<std::optional<storage::StepRecord>> record = catalog_->Find(step);
  if (!record.ok()) return record.status();
  const std::string& directory = catalog_->layout().directory();
  if (!record->has_value() || (*record)->info.state == StepState::kFailed) {
    return absl::NotFoundError(fmt::format("step {} is not committed in {}", step, directory));
  }
  const StepInfo& info = (*record)->info;
  if (!IsOrWasToBeRestored(info.state)) {
    return absl::NotFoundError(
        fmt::format("step {} is not committed in {}: {}, {}", step, directory, StepStateName(info.state), info.reason));
  }
  const absl::StatusOr<bool> is_accepted = IsAccepted(info, options);
  if (!is_accepted.ok()) return is_accepted.status();
  if (!*is_accepted) {
    return absl::NotFoundError(fmt::format("step {} is not accepted by RestoreOptions::accept", step));
  }
  if (const std::string why = WhyUnhealthy(info, options); !why.empty()) {
    return absl::NotFoundError(fmt::format("step {} is unhealthy: {}", step, why));
  }
  if (info.state != StepState::kCommitted) {
    if (!catalog_->may_mark()) {
      return absl::DataLossError(fmt::format("step {} is {}: {}", step, StepStateName(info.state), info.reason));
    }
    if (absl::Status status = Reexamine(**record); !status.ok()) return status;
  }
  const absl::StatusOr<bool> held = catalog_->Hold(**record);
  if (!held.ok()) return held.status();
  if (!*held) return absl::NotFoundError(fmt::format("step {} is no longer committed in {}", step, directory));
  RestoreResult result = Try(**record, state, options);
  if (!result.status.ok()) return result.status;
  WarnOfResets(result);
  return std::move(result.report);
}

}  // namespace tidemark
