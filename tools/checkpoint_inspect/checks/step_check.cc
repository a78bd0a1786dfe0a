#include "tools/checkpoint_inspect/checks/step_check.h"

#include <utility>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands/steps.h"

namespace tidemark::inspect {
namespace {

StepCheck CheckAttempt(const StoreReader& reader, const StepInfo& info, const VerifyOptions& options) {
  StepCheck check{.info = info};
  if (info.state == StepState::kLost) {
    check.result = CheckResult::kLost;
    return check;
  }
  if (info.state == StepState::kDeleted) {
    check.result = CheckResult::kRemoved;
    return check;
  }
  absl::StatusOr<VerifyReport> report = reader.Verify(info.step, options);
  if (report.ok()) {
    check.report = *std::move(report);
    if (!check.report.damage.empty()) {
      check.result = CheckResult::kDamaged;
    } else if (info.state == StepState::kDamaged) {
      check.result = CheckResult::kMarked;
    } else if (options.share < 1) {
      check.result = CheckResult::kSampled;
    }
  } else if (absl::IsDataLoss(report.status()) || absl::IsNotFound(report.status())) {
    check.result = CheckResult::kDamaged;
    check.report.damage.push_back({.what = std::string(report.status().message())});
  } else {
    check.result = CheckResult::kUnreadable;
    check.error = report.status();
  }
  return check;
}

}  // namespace

std::string_view CheckResultName(CheckResult result) {
  switch (result) {
    case CheckResult::kSound:
      return "sound";
    case CheckResult::kDamaged:
      return "damaged";
    case CheckResult::kMarked:
      return "marked";
    case CheckResult::kLost:
      return "lost";
    case CheckResult::kRemoved:
      return "removed";
    case CheckResult::kUnreadable:
      return "unreadable";
    case CheckResult::kSampled:
      return "sampled";
  }
  return "";
}

StepCheck CheckStep(StoreReader& reader, const StepInfo& info, const VerifyOptions& options) {
  StepCheck check{.info = info, .result = CheckResult::kRemoved};
  absl::StatusOr<StepInfo> now = reader.FindStep(info.step);
  for (int attempts = 0; attempts < kStepLookupsMax && now.ok(); ++attempts) {
    check = CheckAttempt(reader, *now, options);
    if (check.result != CheckResult::kDamaged) return check;
    // Where the store cannot be read any more, the damage stands.
    if (!reader.Refresh().ok()) return check;
    now = reader.FindStep(info.step);
    const bool deleted = now.ok() && now->state == StepState::kDeleted;
    if (now.ok() && now->attempt == check.info.attempt && !deleted) return check;
  }
  // Without a journal, a step that cannot be found is one whose index is damaged.
  if (!now.ok() && reader.journal_problem().ok()) return {.info = check.info, .result = CheckResult::kRemoved};
  return check;
}

std::set<std::string> DamagedFilesBehind(const StoreReader& reader, const std::vector<StepCheck>& checks,
                                         int64_t step) {
  std::set<std::string> files;
  const absl::StatusOr<std::vector<std::string>> attempts = reader.References(step);
  if (!attempts.ok()) return files;
  for (const std::string& attempt : *attempts) {
    for (const StepCheck& check : checks) {
      const bool is_of_attempt = check.info.attempt == attempt;
      const std::string unnamed = fmt::format("the files of step {}", check.info.step);
      if (is_of_attempt && check.result == CheckResult::kLost) files.insert(unnamed);
      for (const Damage& damage : check.report.damage) {
        if (damage.path.find(attempt) != std::string::npos) files.insert(damage.path);
        if (is_of_attempt && damage.path.empty()) files.insert(unnamed);
      }
    }
  }
  return files;
}

}  // namespace tidemark::inspect
