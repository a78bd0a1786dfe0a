// The options that evaluators and workers share, from Python.

#ifndef TIDEMARK_PYTHON_NATIVE_EVALUATOR_OPTIONS_H_
#define TIDEMARK_PYTHON_NATIVE_EVALUATOR_OPTIONS_H_

#include <map>
#include <string>

#include "python/native/options_dict.h"
#include "tidemark/evaluator.h"

namespace tidemark::python {

inline WhenLagging WhenLaggingOf(const std::string& when_lagging) {
  if (when_lagging == "block") return WhenLagging::kBlock;
  if (when_lagging == "skip") return WhenLagging::kSkip;
  if (when_lagging == "latest") return WhenLagging::kLatest;
  if (when_lagging == "queue") return WhenLagging::kQueue;
  Raise(absl::InvalidArgumentError("when_lagging is '" + when_lagging + "', not 'block', 'skip', 'latest' or 'queue'"));
}

inline HalfPrecision HalfPrecisionOf(const std::string& half) {
  if (half.empty()) return HalfPrecision::kNone;
  if (half == "bfloat16") return HalfPrecision::kBfloat16;
  if (half == "float16") return HalfPrecision::kFloat16;
  Raise(absl::InvalidArgumentError("half_precision is '" + half + "', not 'bfloat16' or 'float16'"));
}

inline EvaluatorOptions EvaluatorOptionsOf(const nanobind::dict& options) {
  EvaluatorOptions out{.name = Option<std::string>(options, "name"),
                       .max_pending = Option<int64_t>(options, "max_pending"),
                       .when_lagging = WhenLaggingOf(Option<std::string>(options, "when_lagging")),
                       .every_steps = Option<int64_t>(options, "every_steps"),
                       .entries = Option<std::vector<std::string>>(options, "entries"),
                       .half_precision = HalfPrecisionOf(Option<std::string>(options, "half_precision")),
                       .threads = Option<int>(options, "threads")};
  for (const auto& [metric, mode] : Option<std::map<std::string, std::string>>(options, "best")) {
    if (const std::optional<BestMode> given = ModeOf(mode)) out.best.emplace(metric, *given);
  }
  return out;
}

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_EVALUATOR_OPTIONS_H_
