#include "tools/checkpoint_inspect/tensors/step_order.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands/steps.h"

namespace tidemark::inspect {
namespace {

// What a step without the metric has, and one where it is NaN, before those that have a value to be sorted by.
std::tuple<int, double> Rank(const StepInfo& info, const std::string& metric) {
  const auto found = info.metrics.find(metric);
  if (found == info.metrics.end()) return {0, 0};
  return std::isnan(found->second) ? std::tuple(1, 0.0) : std::tuple(2, found->second);
}

}  // namespace

absl::StatusOr<StepOrder> ParseStepOrder(std::string_view text) {
  constexpr std::string_view kMetricPrefix = "metric:";
  if (text == "step") return StepOrder{.key = StepOrder::Key::kStep};
  if (text == "age") return StepOrder{.key = StepOrder::Key::kAge};
  if (text == "size") return StepOrder{.key = StepOrder::Key::kSize};
  if (text.starts_with(kMetricPrefix) && text.size() > kMetricPrefix.size()) {
    return StepOrder{.key = StepOrder::Key::kMetric, .metric = std::string(text.substr(kMetricPrefix.size()))};
  }
  return absl::InvalidArgumentError(
      fmt::format("unknown order '{0}'; --sort takes {1}, so a metric is metric:{0}", text, kStepOrderHelp));
}

void Arrange(const StepOrder& order, std::vector<const StepInfo*>& steps) {
  const auto sort_by = [&](const auto& key_of) {
    std::stable_sort(steps.begin(), steps.end(),
                     [&](const StepInfo* a, const StepInfo* b) { return key_of(*a) < key_of(*b); });
  };
  switch (order.key) {
    case StepOrder::Key::kStep:
      break;
    case StepOrder::Key::kAge:
      sort_by([](const StepInfo& info) { return KnowsCreated(info) ? info.created : absl::InfinitePast(); });
      break;
    case StepOrder::Key::kSize:
      sort_by([](const StepInfo& info) { return info.stored_bytes; });
      break;
    case StepOrder::Key::kMetric:
      sort_by([&](const StepInfo& info) { return Rank(info, order.metric); });
      break;
  }
}

}  // namespace tidemark::inspect
