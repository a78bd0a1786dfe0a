#include "storage/manifest/kept_steps.h"

#include <utility>

namespace tidemark::storage {

std::optional<CommittedSteps> KeptSteps::Get() const {
  if (!steps_) return std::nullopt;
  CommittedSteps steps;
  steps.reserve(steps_->size());
  for (const auto& [step, info] : *steps_) steps.push_back(info);
  return steps;
}

void KeptSteps::Keep(const CommittedSteps& steps, uint64_t writes_before) {
  if (writes_ != writes_before || in_doubt_) return;
  steps_.emplace();
  for (const auto& info : steps) steps_->emplace_hint(steps_->end(), info->step, info);
}

void KeptSteps::Wrote(const absl::Status& status, std::vector<StepInfo> steps) {
  in_doubt_ = !status.ok();
  if (in_doubt_) return Forget();
  ++writes_;
  if (!steps_) return;
  for (StepInfo& info : steps) {
    const int64_t step = info.step;
    if (info.state == StepState::kCommitted) {
      (*steps_)[step] = std::make_shared<const StepInfo>(std::move(info));
    } else {
      steps_->erase(step);
    }
  }
}

void KeptSteps::Forget() {
  ++writes_;
  steps_.reset();
}

}  // namespace tidemark::storage
