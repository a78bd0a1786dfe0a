#include "tidemark/step_info.h"

#include <algorithm>

namespace tidemark {

std::string_view StepStateName(StepState state) {
  switch (state) {
    case StepState::kCommitted:
      return "committed";
    case StepState::kDamaged:
      return "damaged";
    case StepState::kLost:
      return "lost";
    case StepState::kFailed:
      return "failed";
    case StepState::kDeleted:
      return "deleted";
    case StepState::kUnsaved:
      return "unsaved";
  }
  return "";
}

std::string_view OutcomeName(Evaluation::Outcome outcome) {
  switch (outcome) {
    case Evaluation::Outcome::kDone:
      return "done";
    case Evaluation::Outcome::kSkipped:
      return "skipped";
    case Evaluation::Outcome::kFailed:
      return "failed";
  }
  return "";
}

std::string StepInfo::unhealthy() const {
  for (const Evaluation& evaluation : evaluations) {
    if (!evaluation.unhealthy.empty()) return evaluation.evaluator + ": " + evaluation.unhealthy;
  }
  return "";
}

bool StepInfo::evaluated_by(std::string_view evaluator) const {
  return std::any_of(evaluations.begin(), evaluations.end(),
                     [evaluator](const Evaluation& evaluation) { return evaluation.evaluator == evaluator; });
}

}  // namespace tidemark
