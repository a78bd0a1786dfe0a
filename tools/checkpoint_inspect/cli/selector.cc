#include "tools/checkpoint_inspect/cli/selector.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/manifest/tag.h"
#include "tools/checkpoint_inspect/cli/metric_choice.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// Of the metrics or tags that there are, where one is asked for that there is not.
constexpr size_t kNamesMax = 50;

absl::Status NothingCommitted(const std::string& directory) {
  return absl::FailedPreconditionError(fmt::format("no step is committed in {}", directory));
}

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

absl::StatusOr<StepInfo> FindLatest(const StoreReader& reader, const std::string& directory, bool healthy) {
  absl::StatusOr<StepInfo> latest = healthy ? reader.LatestHealthyStep() : reader.LatestStep();
  if (latest.ok()) return latest;
  if (!reader.LatestStep().ok()) return NothingCommitted(directory);
  return absl::FailedPreconditionError(
      fmt::format("evaluators called every committed step in {} unhealthy; 'ls' says why", directory));
}

absl::StatusOr<StepInfo> FindBest(const StoreReader& reader, const std::string& directory, const Selector& selector) {
  if (absl::Status known = CheckMetric(reader, selector.metric, {.before = "best:"}); !known.ok()) return known;
  absl::StatusOr<StepInfo> best = reader.BestStep(selector.metric, BestEnd(reader, selector.metric, selector.mode));
  if (!absl::IsNotFound(best.status())) return best;
  if (!reader.LatestStep().ok()) return NothingCommitted(directory);
  return absl::FailedPreconditionError(std::string(best.status().message()));
}

absl::StatusOr<StepInfo> FindTagged(const StoreReader& reader, const std::string& tag) {
  if (absl::Status known = CheckSomeStepHasTag(reader, tag); !known.ok()) return known;
  std::vector<StepInfo> steps = TaggedSteps(reader, tag);
  if (steps.size() == 1) return std::move(steps.front());
  return absl::AlreadyExistsError(fmt::format(
      "{} have the tag '{}'; 'tag --move' leaves it to one of them, 'untag' removes it", StepNumbers(steps), tag));
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
    if (!choice.name.empty()) {
      return Selector{.kind = Selector::Kind::kBest, .metric = choice.name, .mode = choice.mode};
    }
  }
  rest = text;
  if (take_prefix(rest, "tag:") && storage::CheckTag(rest).ok()) {
    return Selector{.kind = Selector::Kind::kTag, .tag = std::string(rest)};
  }
  rest = text;
  take_prefix(rest, "step:");
  if (const std::optional<int64_t> step = ParseStep(rest)) {
    return Selector{.kind = Selector::Kind::kStep, .step = *step};
  }
  if (text.starts_with("best") && (text == "best" || text == "best:")) {
    return absl::InvalidArgumentError("best needs a metric, as in best:loss or best:validation/loss");
  }
  return absl::InvalidArgumentError(fmt::format("'{}' is not a step; a step is {}", text, kSelectorHelp));
}

absl::StatusOr<StepInfo> Resolve(const StoreReader& reader, const std::string& directory, const Selector& selector,
                                 StepPredicate usable) {
  switch (selector.kind) {
    case Selector::Kind::kStep:
      return FindStep(reader, directory, selector.step, usable);
    case Selector::Kind::kLatest:
      return FindLatest(reader, directory, /*healthy=*/false);
    case Selector::Kind::kLatestHealthy:
      return FindLatest(reader, directory, /*healthy=*/true);
    case Selector::Kind::kBest:
      return FindBest(reader, directory, selector);
    case Selector::Kind::kTag:
      return FindTagged(reader, selector.tag);
  }
  return absl::InternalError("no such selector");
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

BestMode BestEnd(const StoreReader& reader, const std::string& metric, std::optional<BestMode> said) {
  return said.value_or(reader.BestModeOf(metric).value_or(BestMode::kLowest));
}

std::string UnknownEnd(const StoreReader& reader, std::string_view before, const std::string& metric) {
  if (reader.BestModeOf(metric)) return "";
  const absl::StatusOr<StepInfo> lowest = reader.BestStep(metric, BestMode::kLowest);
  const absl::StatusOr<StepInfo> highest = reader.BestStep(metric, BestMode::kHighest);
  if (!lowest.ok() || !highest.ok() || highest->step == lowest->step) return "";
  return fmt::format("lower was taken for better: {0}{1}:lowest is step {2} ({3}), {0}{1}:highest is step {4} ({5})",
                     before, metric, lowest->step, MetricText(lowest->metrics.at(metric)), highest->step,
                     MetricText(highest->metrics.at(metric)));
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
