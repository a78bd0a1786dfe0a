#include "tools/checkpoint_inspect/cli/metric_choice.h"

#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "tidemark/step_selector.h"

namespace tidemark::inspect {

MetricChoice ParseMetricChoice(std::string_view text) {
  const absl::StatusOr<StepSelector> best = StepSelector::Parse(fmt::format("best:{}", text));
  if (!best.ok()) return {};
  return {.name = best->metric(), .mode = best->mode()};
}

}  // namespace tidemark::inspect
