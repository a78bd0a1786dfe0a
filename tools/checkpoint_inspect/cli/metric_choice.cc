#include "tools/checkpoint_inspect/cli/metric_choice.h"

#include <utility>

namespace tidemark::inspect {

MetricChoice ParseMetricChoice(std::string_view text) {
  for (const auto& [ending, mode] : {std::pair(std::string_view(":highest"), BestMode::kHighest),
                                     std::pair(std::string_view(":lowest"), BestMode::kLowest)}) {
    if (!text.ends_with(ending)) continue;
    text.remove_suffix(ending.size());
    return {.name = std::string(text), .mode = mode};
  }
  return {.name = std::string(text), .mode = std::nullopt};
}

}  // namespace tidemark::inspect
