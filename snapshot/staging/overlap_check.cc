#include "snapshot/staging/overlap_check.h"

#include <cstdint>
#include <string>
#include <utility>

#include "fmt/format.h"

namespace tidemark {
namespace {

constexpr size_t kNamesMax = 3;

}  // namespace

OverlapCheck::OverlapCheck(std::shared_ptr<const StagingPlan> plan)
    : plan_(std::move(plan)), pieces_(plan_->pieces().size()), device_tensors_(plan_->device_tensors().size()) {}

void OverlapCheck::ComparePiece(size_t piece, std::span<const std::byte> bytes) {
  if (storage::DigestOf(bytes) != pieces_[piece]) AddChanged(plan_->pieces()[piece].entry);
}

void OverlapCheck::CompareDeviceTensor(size_t index, std::span<const std::byte> bytes) {
  if (storage::DigestOf(bytes) != device_tensors_[index]) AddChanged(plan_->device_tensors()[index]);
}

void OverlapCheck::AddChanged(size_t entry) {
  absl::MutexLock lock(&mutex_);
  changed_.insert(entry);
}

absl::Status OverlapCheck::Result(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  if (changed_.empty()) return absl::OkStatus();
  std::string names;
  size_t named = 0;
  for (const size_t entry : changed_) {
    if (named == kNamesMax) break;
    names += fmt::format("{}'{}'", named++ == 0 ? "" : ", ", plan_->specs()[entry].name);
  }
  if (changed_.size() > named) names += fmt::format(" and {} more", changed_.size() - named);
  const bool one = changed_.size() == 1;
  return absl::AbortedError(fmt::format(
      "step {} is dropped: {} changed after Save and before {} copied: {}; call WaitUntilStaged before the "
      "optimizer's step, or use Staging::kBlocking",
      step, one ? "a tensor" : fmt::format("{} tensors", changed_.size()), one ? "it was" : "they were", names));
}

}  // namespace tidemark
