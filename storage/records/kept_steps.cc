#include "storage/records/kept_steps.h"

#include <string>
#include <utility>

namespace tidemark::storage {
namespace {

size_t TextBytes(const StepInfo& info) {
  size_t bytes = info.user_metadata.size();
  for (const Evaluation& row : info.evaluations) {
    bytes += row.reason.size();
    for (const auto& [name, value] : row.metrics) bytes += sizeof(name) + sizeof(value) + name.size();
  }
  return bytes;
}

}  // namespace

std::shared_ptr<const StepInfo> KeptStep(StepInfo info) {
  if (TextBytes(info) > kKeptTextBytesMax) {
    std::string().swap(info.user_metadata);
    for (Evaluation& row : info.evaluations) {
      row.metrics.clear();
      std::string().swap(row.reason);
    }
  }
  return std::make_shared<const StepInfo>(std::move(info));
}

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
  try {
    for (StepInfo& info : steps) {
      const int64_t step = info.step;
      if (info.state == StepState::kCommitted) {
        (*steps_)[step] = KeptStep(std::move(info));
      } else {
        steps_->erase(step);
      }
    }
  } catch (...) {
    Forget();  // there is no memory to keep them in
  }
}

void KeptSteps::Forget() {
  ++writes_;
  steps_.reset();
}

}  // namespace tidemark::storage
