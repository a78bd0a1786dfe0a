// MetricChoice: how the command line names a metric and which of its values is the best.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_METRIC_CHOICE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_METRIC_CHOICE_H_

#include <optional>
#include <string>
#include <string_view>

#include "tidemark/step_info.h"

namespace tidemark::inspect {

struct MetricChoice {
  std::string name;  // empty: the text names none, which the caller refuses
  std::optional<BestMode> mode;
};

// "METRIC", "METRIC:highest", "METRIC:lowest", as StepSelector reads them behind "best:". A metric whose own name ends
// like that is followed by what is meant.
MetricChoice ParseMetricChoice(std::string_view text);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_METRIC_CHOICE_H_
