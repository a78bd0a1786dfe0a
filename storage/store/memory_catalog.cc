#include "storage/store/memory_catalog.h"

#include <algorithm>
#include <utility>

namespace tidemark::storage {

void MemoryCatalog::Apply(std::span<const Fact> facts) {
  absl::MutexLock lock(&mutex_);
  for (const Fact& fact : facts) state_.Apply(fact);
}

void MemoryCatalog::ForgetGarbage(std::span<const AttemptId> attempts) {
  absl::MutexLock lock(&mutex_);
  forgotten_.insert(attempts.begin(), attempts.end());
}

uint64_t MemoryCatalog::last_sequence() const {
  absl::MutexLock lock(&mutex_);
  return state_.last_sequence();
}

absl::StatusOr<std::optional<StepRecord>> MemoryCatalog::Find(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  return state_.Find(step);
}

absl::StatusOr<std::optional<StepRecord>> MemoryCatalog::FindAtOrBelow(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  return state_.FindAtOrBelow(step);
}

absl::StatusOr<std::optional<StepRecord>> MemoryCatalog::FindCommittedAtOrBelow(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  return state_.FindCommittedAtOrBelow(step);
}

absl::Status MemoryCatalog::ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step) const {
  absl::MutexLock lock(&mutex_);
  state_.ForEach(visit, first_step);
  return absl::OkStatus();
}

absl::StatusOr<CommittedSteps> MemoryCatalog::Committed() const {
  absl::MutexLock lock(&mutex_);
  CommittedSteps steps;
  for (const int64_t step : state_.committed()) {
    if (std::optional<StepRecord> record = state_.Find(step)) steps.push_back(KeptStep(std::move(record->info)));
  }
  return steps;
}

absl::StatusOr<std::optional<int64_t>> MemoryCatalog::LatestCommitted() const {
  absl::MutexLock lock(&mutex_);
  return state_.LatestCommitted();
}

absl::StatusOr<std::optional<StepRecord>> MemoryCatalog::FindBest(std::string_view metric, BestMode mode) const {
  absl::MutexLock lock(&mutex_);
  return state_.FindBest(metric, mode);
}

absl::StatusOr<BestModes> MemoryCatalog::RecordedBestModes() const {
  absl::MutexLock lock(&mutex_);
  return state_.recorded_best_modes();
}

absl::StatusOr<std::vector<SavePhase>> MemoryCatalog::Phases(int64_t step, std::string_view attempt) const {
  absl::MutexLock lock(&mutex_);
  return state_.Phases(step, attempt);
}

absl::StatusOr<bool> MemoryCatalog::IsReferenced(const AttemptId& attempt) const {
  absl::MutexLock lock(&mutex_);
  return state_.IsReferenced(attempt);
}

absl::StatusOr<std::vector<DeletionRecord>> MemoryCatalog::Deletions() const {
  absl::MutexLock lock(&mutex_);
  std::vector<DeletionRecord> deletions = state_.Deletions();
  std::erase_if(deletions, [&](const DeletionRecord& deletion)
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return forgotten_.contains(deletion.attempt); });
  return deletions;
}

absl::StatusOr<std::vector<DeletionRequestFact>> MemoryCatalog::Requests() const {
  absl::MutexLock lock(&mutex_);
  std::vector<DeletionRequestFact> requests;
  for (const auto& [id, request] : state_.requests()) requests.push_back(request);
  SortRequests(requests);
  return requests;
}

}  // namespace tidemark::storage
