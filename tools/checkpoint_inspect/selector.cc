#include "tools/checkpoint_inspect/selector.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/metric_choice.h"

namespace tidemark::inspect {
namespace {

// Of the metrics that there are, where one is asked for that there is not.
constexpr size_t kNamesMax = 50;

absl::Status NothingCommitted(const std::string& directory) {
  return absl::FailedPreconditionError(fmt::format("no step is committed in {}", directory));
}

absl::StatusOr<StepInfo> FindStep(const StoreReader& reader, const std::string& directory, int64_t step) {
  absl::StatusOr<StepInfo> found = reader.Find(step);
  if (!absl::IsNotFound(found.status())) return found;
  const std::vector<StepInfo>& steps = reader.steps();
  if (steps.empty()) {
    return absl::NotFoundError(fmt::format("step {} is not in {}, which has no steps", step, directory));
  }
  const auto above =
      std::find_if(steps.begin(), steps.end(), [step](const StepInfo& info) { return info.step > step; });
  std::string nearest;
  if (above != steps.begin()) nearest += fmt::format("{}", (above - 1)->step);
  if (above != steps.end()) nearest += fmt::format("{}{}", nearest.empty() ? "" : " and ", above->step);
  return absl::NotFoundError(fmt::format("step {} is not in {}; nearest: {}", step, directory, nearest));
}

absl::StatusOr<StepInfo> FindLatest(const StoreReader& reader, const std::string& directory, bool healthy) {
  bool any = false;
  for (auto info = reader.steps().rbegin(); info != reader.steps().rend(); ++info) {
    if (info->state != StepState::kCommitted) continue;
    if (!healthy || info->unhealthy().empty()) return *info;
    any = true;
  }
  if (!any) return NothingCommitted(directory);
  return absl::FailedPreconditionError(
      fmt::format("of the committed steps in {} none is healthy; 'ls' says why of each", directory));
}

absl::StatusOr<StepInfo> FindBest(const StoreReader& reader, const std::string& directory, const Selector& selector) {
  if (absl::Status known = CheckMetric(reader, selector.metric); !known.ok()) return known;
  absl::StatusOr<StepInfo> best = reader.Best(selector.metric, selector.mode);
  if (!absl::IsNotFound(best.status())) return best;
  if (!reader.Latest().ok()) return NothingCommitted(directory);
  return absl::FailedPreconditionError(std::string(best.status().message()));
}

}  // namespace

std::optional<int64_t> ParseStep(std::string_view text) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step < 0) return std::nullopt;
  return step;
}

absl::StatusOr<Selector> ParseSelector(std::string_view text) {
  if (text == "latest") return Selector{.kind = Selector::Kind::kLatest};
  if (text == "latest-healthy") return Selector{.kind = Selector::Kind::kLatestHealthy};
  const auto take_prefix = [](std::string_view& rest, std::string_view prefix) {
    const bool has_it = rest.starts_with(prefix);
    if (has_it) rest.remove_prefix(prefix.size());
    return has_it;
  };
  std::string_view rest = text;
  if (take_prefix(rest, "best:")) {
    const MetricChoice choice = ParseMetricChoice(rest);
    const BestMode mode = choice.mode.value_or(BestMode::kLowest);
    if (!choice.name.empty()) return Selector{.kind = Selector::Kind::kBest, .metric = choice.name, .mode = mode};
  }
  rest = text;
  take_prefix(rest, "step:");
  if (const std::optional<int64_t> step = ParseStep(rest)) {
    return Selector{.kind = Selector::Kind::kStep, .step = *step};
  }
  return absl::InvalidArgumentError(fmt::format("'{}' is not a step; a step is {}", text, kSelectorHelp));
}

absl::StatusOr<StepInfo> Resolve(const StoreReader& reader, const std::string& directory, const Selector& selector) {
  switch (selector.kind) {
    case Selector::Kind::kStep:
      return FindStep(reader, directory, selector.step);
    case Selector::Kind::kLatest:
      return FindLatest(reader, directory, /*healthy=*/false);
    case Selector::Kind::kLatestHealthy:
      return FindLatest(reader, directory, /*healthy=*/true);
    case Selector::Kind::kBest:
      return FindBest(reader, directory, selector);
  }
  return absl::InternalError("no such selector");
}

absl::Status CheckMetric(const StoreReader& reader, const std::string& metric) {
  std::set<std::string> known;
  for (const StepInfo& info : reader.steps()) {
    for (const auto& [name, value] : info.metrics) known.insert(name);
  }
  if (known.contains(metric)) return absl::OkStatus();
  if (known.empty()) {
    return absl::NotFoundError(fmt::format("no step has a metric '{}'; there are no metrics", metric));
  }
  std::vector<std::string> named(known.begin(), known.end());
  std::string more;
  if (named.size() > kNamesMax) {
    more = fmt::format(" and {} more", named.size() - kNamesMax);
    named.resize(kNamesMax);
  }
  return absl::NotFoundError(
      fmt::format("no step has a metric '{}'; there are: {}{}", metric, fmt::join(named, ", "), more));
}

}  // namespace tidemark::inspect
