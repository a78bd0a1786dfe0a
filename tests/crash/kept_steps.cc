#include "tests/crash/kept_steps.h"

#include <algorithm>
#include <cstddef>

namespace tidemark::crash {

void KeptSteps::Saved(int64_t step) {
  std::erase(by_commit_, step);
  by_commit_.push_back(step);
}

void KeptSteps::Pinned(int64_t step, bool pinned) {
  if (pinned) {
    pinned_.insert(step);
  } else {
    pinned_.erase(step);
  }
}

void KeptSteps::Gone(int64_t step) {
  std::erase(by_commit_, step);
  pinned_.erase(step);
}

std::vector<int64_t> KeptSteps::Due(int64_t max_to_keep) const {
  const auto kept = static_cast<size_t>(max_to_keep);
  if (kept == 0 || by_commit_.size() <= kept) return {};
  const int64_t highest = *std::max_element(by_commit_.begin(), by_commit_.end());
  std::vector<int64_t> due(by_commit_.begin(), by_commit_.end() - static_cast<std::ptrdiff_t>(kept));
  std::erase_if(due, [&](int64_t step) { return step == highest || pinned_.contains(step); });
  std::sort(due.begin(), due.end());
  return due;
}

}  // namespace tidemark::crash
