#include "tools/checkpoint_inspect/checks/growth.h"

#include <algorithm>

#include "tools/checkpoint_inspect/commands/steps.h"

namespace tidemark::inspect {
namespace {

constexpr double kDaysMax = 365.25 * 1000;

bool WasCommitted(const StepInfo& info) {
  return info.state == StepState::kCommitted || info.state == StepState::kDamaged || info.state == StepState::kLost ||
         info.state == StepState::kDeleted;
}

// Precondition: it is not empty.
absl::Duration Median(std::vector<absl::Duration> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<double> KeptShare(const std::vector<const StepInfo*>& saves) {
  double written = 0;
  double kept = 0;
  for (size_t i = 0; i < saves.size() / 2; ++i) {
    const auto bytes = static_cast<double>(saves[i]->stored_bytes);
    written += bytes;
    if (IsOnDisk(*saves[i])) kept += bytes;
  }
  if (written == 0) return std::nullopt;
  return kept / written;
}

}  // namespace

std::optional<double> Growth::written_per_day() const {
  if (!between_saves || span < kGrowthSpanMin) return std::nullopt;
  return bytes_per_save * absl::FDivDuration(absl::Hours(24), *between_saves);
}

std::optional<double> Growth::kept_per_day() const {
  const std::optional<double> written = written_per_day();
  if (!written || !kept_share) return std::nullopt;
  return *written * *kept_share;
}

bool Growth::IsIdle(absl::Time now) const {
  return between_saves && last_save && now - *last_save > kIdleAfterSaves * *between_saves;
}

Growth EstimateGrowth(const std::vector<StepInfo>& steps) {
  std::vector<const StepInfo*> saves;
  for (const StepInfo& info : steps) {
    if (WasCommitted(info)) saves.push_back(&info);
  }
  std::sort(saves.begin(), saves.end(), [](const StepInfo* a, const StepInfo* b) { return a->sequence < b->sequence; });
  Growth growth{.saves = std::min(saves.size(), kGrowthSavesMax), .kept_share = KeptShare(saves)};
  std::vector<absl::Duration> times;
  const StepInfo* before = nullptr;
  for (size_t i = saves.size() - growth.saves; i < saves.size(); ++i) {
    growth.bytes_per_save += static_cast<double>(saves[i]->stored_bytes) / static_cast<double>(growth.saves);
    if (before != nullptr && KnowsCreated(*before) && KnowsCreated(*saves[i])) {
      const absl::Duration time = saves[i]->created - before->created;
      if (time > absl::ZeroDuration()) {
        times.push_back(time);
        growth.span += time;
      }
    }
    before = saves[i];
  }
  if (before != nullptr && KnowsCreated(*before)) growth.last_save = before->created;
  if (!times.empty()) growth.between_saves = Median(std::move(times));
  return growth;
}

std::optional<absl::Duration> TimeUntilFull(uint64_t free_bytes, std::optional<double> bytes_per_day) {
  if (!bytes_per_day || *bytes_per_day <= 0) return std::nullopt;
  const double days = static_cast<double>(free_bytes) / *bytes_per_day;
  if (!(days <= kDaysMax)) return std::nullopt;
  return days * absl::Hours(24);
}

}  // namespace tidemark::inspect
