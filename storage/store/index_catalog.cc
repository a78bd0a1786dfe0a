#include "storage/store/index_catalog.h"

namespace tidemark::storage {

absl::StatusOr<std::optional<StepRecord>> IndexCatalog::Find(int64_t step) const {
  return Answer([&](const StepCatalog& catalog) { return catalog.Find(step); });
}

absl::StatusOr<std::optional<StepRecord>> IndexCatalog::FindAtOrBelow(int64_t step) const {
  return Answer([&](const StepCatalog& catalog) { return catalog.FindAtOrBelow(step); });
}

absl::StatusOr<std::optional<StepRecord>> IndexCatalog::FindCommittedAtOrBelow(int64_t step) const {
  return Answer([&](const StepCatalog& catalog) { return catalog.FindCommittedAtOrBelow(step); });
}

// Goes on behind the last step that was visited.
absl::Status IndexCatalog::ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step) const {
  int64_t next = first_step;
  const absl::Status status = index_->ForEach(
      [&](StepRecord record) {
        next = record.info.step + 1;
        return visit(std::move(record));
      },
      first_step);
  if (status.ok()) return status;
  const StepCatalog* instead = replace_(status);
  return instead == nullptr ? status : instead->ForEach(visit, next);
}

absl::StatusOr<CommittedSteps> IndexCatalog::Committed() const {
  return Answer([](const StepCatalog& catalog) { return catalog.Committed(); });
}

absl::StatusOr<std::optional<int64_t>> IndexCatalog::LatestCommitted() const {
  return Answer([](const StepCatalog& catalog) { return catalog.LatestCommitted(); });
}

absl::StatusOr<std::optional<StepRecord>> IndexCatalog::FindBest(std::string_view metric, BestMode mode) const {
  return Answer([&](const StepCatalog& catalog) { return catalog.FindBest(metric, mode); });
}

absl::StatusOr<BestModes> IndexCatalog::RecordedBestModes() const {
  return Answer([](const StepCatalog& catalog) { return catalog.RecordedBestModes(); });
}

absl::StatusOr<std::vector<SavePhase>> IndexCatalog::Phases(int64_t step, std::string_view attempt) const {
  return Answer([&](const StepCatalog& catalog) { return catalog.Phases(step, attempt); });
}

absl::StatusOr<bool> IndexCatalog::IsReferenced(const AttemptId& attempt) const {
  return Answer([&](const StepCatalog& catalog) { return catalog.IsReferenced(attempt); });
}

absl::StatusOr<std::vector<DeletionRecord>> IndexCatalog::Deletions() const {
  return Answer([](const StepCatalog& catalog) { return catalog.Deletions(); });
}

absl::StatusOr<std::vector<DeletionRequestFact>> IndexCatalog::Requests() const {
  return Answer([](const StepCatalog& catalog) { return catalog.Requests(); });
}

}  // namespace tidemark::storage
