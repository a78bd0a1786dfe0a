#include "tools/checkpoint_inspect/cli/selector.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/records/tag.h"
#include "tools/checkpoint_inspect/cli/metric_choice.h"

namespace tidemark::inspect {
namespace {

// Of the metrics or tags that there are, where one is asked for that there is not.
constexpr size_t kNamesMax = 50;

absl::StatusOr<StepInfo> FindStep(const StoreReader& reader, const std::string& directory, int64_t step,
                                  StepPredicate usable) {
  absl::StatusOr<StepInfo> found = reader.FindStep(step);
  if (!absl::IsNotFound(found.status())) return found;
  const std::vector<StepInfo>& steps = reader.Steps();
  if (steps.empty()) {
    return absl::NotFoundError(fmt::format("step {} is not in {}, which has no steps", step, directory));
  }
  const std::string nearest = NearestSteps(steps, step, usable);
  return absl::NotFoundError(fmt::format("step {} is not in {}{}", step, directory,
                                         nearest.empty() ? ", which has no usable step" : "; nearest: " + nearest));
}

// The error of Resolve for one of StepSelector::Choose.
absl::Status NoneChosen(const StoreReader& reader, const std::string& directory, StepSelector::Kind kind,
                        const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsFailedPrecondition(status)) return absl::AlreadyExistsError(message);
  if (!absl::IsNotFound(status)) return status;
  if (!reader.LatestStep().ok()) {
    return absl::FailedPreconditionError(fmt::format("no step is committed in {}", directory));
  }
  if (kind != StepSelector::Kind::kLatestHealthy) return absl::FailedPreconditionError(message);
  return absl::FailedPreconditionError(
      fmt::format("evaluators called every committed step in {} unhealthy; 'ls' says why", directory));
}

// `what`: "metric" or "tag".
absl::Status CheckKnown(std::string_view what, const std::string& name, const std::set<std::string>& known) {
  if (known.contains(name)) return absl::OkStatus();
  if (known.empty()) return absl::NotFoundError(fmt::format("no step has a {0} '{1}'; there are no {0}s", what, name));
  std::vector<std::string> named(known.begin(), known.end());
  std::string more;
  if (named.size() > kNamesMax) {
    more = fmt::format(" and {} more", named.size() - kNamesMax);
    named.resize(kNamesMax);
  }
  return absl::NotFoundError(
      fmt::format("no step has a {} '{}'; there are: {}{}", what, name, fmt::join(named, ", "), more));
}

}  // namespace

std::optional<int64_t> ParseStep(std::string_view text) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step < 0) return std::nullopt;
  return step;
}

absl::StatusOr<StepInfo> Resolve(const StoreReader& reader, const std::string& directory, const StepSelector& selector,
                                 StepPredicate usable) {
  absl::Status known;
  switch (selector.kind()) {
    case StepSelector::Kind::kStep:
      return FindStep(reader, directory, selector.step(), usable);
    case StepSelector::Kind::kBest:
      known = CheckMetric(reader, selector.metric(), {.before = "best:"});
      break;
    case StepSelector::Kind::kTag:
      known = CheckSomeStepHasTag(reader, selector.tag());
      break;
    case StepSelector::Kind::kLatest:
    case StepSelector::Kind::kLatestHealthy:
      break;
  }
  if (!known.ok()) return known;
  const absl::StatusOr<StepSelector> with_mode = selector.WithMode(reader.recorded_best_modes());
  if (!with_mode.ok()) return with_mode.status();
  const auto chosen = with_mode->Choose(reader.Steps(), StepSelector::Purpose::kInspect);
  if (!chosen.ok()) return NoneChosen(reader, directory, selector.kind(), chosen.status());
  return *chosen->front();
}

absl::Status CheckMetric(const StoreReader& reader, const std::string& metric, const MetricPlace& place) {
  std::set<std::string> known;
  for (const StepInfo& info : reader.Steps()) {
    for (const auto& [name, value] : info.metrics) known.insert(name);
  }
  const size_t colon = metric.rfind(':');
  const bool has_wrong_end = colon != std::string::npos && !known.contains(metric) &&
                             known.contains(metric.substr(0, colon)) &&
                             (!place.no_end.empty() || !ParseMetricChoice(metric).mode);
  if (!has_wrong_end) return CheckKnown("metric", metric, known);
  const std::string end = metric.substr(colon + 1);
  const std::string named = fmt::format("{}{}", place.before, metric.substr(0, colon));
  return absl::NotFoundError(
      place.no_end.empty()
          ? fmt::format("'{0}' is neither highest nor lowest; use {1}:highest or {1}:lowest", end, named)
          : fmt::format("{}:{} is {}", named, end, place.no_end));
}

absl::Status CheckSomeStepHasTag(const StoreReader& reader, const std::string& tag) {
  std::set<std::string> known;
  for (const StepInfo& info : reader.Steps()) known.insert(info.tags.begin(), info.tags.end());
  return CheckKnown("tag", tag, known);
}

std::string NearestSteps(const std::vector<StepInfo>& steps, int64_t step, StepPredicate usable) {
  const auto above =
      std::find_if(steps.begin(), steps.end(), [&](const StepInfo& info) { return info.step > step && usable(info); });
  const auto below = std::find_if(steps.rbegin(), steps.rend(),
                                  [&](const StepInfo& info) { return info.step < step && usable(info); });
  std::string nearest;
  if (below != steps.rend()) nearest += fmt::format("{}", below->step);
  if (above != steps.end()) nearest += fmt::format("{}{}", nearest.empty() ? "" : " and ", above->step);
  return nearest;
}

std::vector<StepInfo> TaggedSteps(const StoreReader& reader, const std::string& tag) {
  std::vector<StepInfo> steps;
  for (const StepInfo& info : reader.Steps()) {
    if (storage::HasTag(info.tags, tag)) steps.push_back(info);
  }
  return steps;
}

std::string StepNumbers(const std::vector<StepInfo>& steps) {
  std::vector<int64_t> numbers;
  for (const StepInfo& info : steps) numbers.push_back(info.step);
  return fmt::format("step{} {}", numbers.size() == 1 ? "" : "s", fmt::join(numbers, ", "));
}

}  // namespace tidemark::inspect
