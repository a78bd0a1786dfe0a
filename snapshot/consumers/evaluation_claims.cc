#include "snapshot/consumers/evaluation_claims.h"

#include <memory>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "snapshot/restore/stored_snapshot.h"

namespace tidemark {

void EvaluationClaims::Claim(int64_t step, std::string_view who) {
  absl::MutexLock lock(&mutex_);
  claims_.emplace(step, storage::YetToRead(who));
}

void EvaluationClaims::Release(int64_t step, std::string_view who) {
  const std::string text = storage::YetToRead(who);
  absl::MutexLock lock(&mutex_);
  const auto [begin, end] = claims_.equal_range(step);
  for (auto claim = begin; claim != end; ++claim) {
    if (claim->second != text) continue;
    claims_.erase(claim);
    return;
  }
}

absl::StatusOr<SnapshotShelf::Reading> EvaluationClaims::Find(int64_t step, std::vector<std::string> patterns,
                                                              HalfPrecision half) {
  absl::StatusOr<std::optional<storage::StepRecord>> record = store_.catalog().Find(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.state != StepState::kCommitted) {
    return absl::NotFoundError(fmt::format("step {} is not committed in {}", step, store_.layout().directory()));
  }
  std::string attempt = (*record)->info.attempt;
  auto reading = [files = files_, layout = store_.layout(), id = store_.id(), read = read_,
                  record = **std::move(record), patterns = std::move(patterns),
                  half]() -> absl::StatusOr<std::shared_ptr<const Snapshot>> {
    return OpenStoredSnapshot({*files, layout, id, read}, record, patterns, half, CompanionEntries::kNever);
  };
  return Reading{.attempt = std::move(attempt), .read = std::move(reading)};
}

void EvaluationClaims::NoteDamage(int64_t step, const std::string& attempt) {
  const absl::StatusOr<std::optional<storage::StepRecord>> record = store_.catalog().Find(step);
  const bool replaced = record.ok() && record->has_value() && (*record)->info.attempt != attempt;
  if (!replaced) on_damage_();
}

storage::Claims EvaluationClaims::Get() const {
  absl::MutexLock lock(&mutex_);
  return claims_;
}

}  // namespace tidemark
