// MemoryCatalog: a StoreState as a StepCatalog that several threads may ask while one brings it up to date.

#ifndef TIDEMARK_STORAGE_STORE_MEMORY_CATALOG_H_
#define TIDEMARK_STORAGE_STORE_MEMORY_CATALOG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/records/step_catalog.h"
#include "storage/records/store_state.h"

namespace tidemark::storage {

// Thread-safe. Has no errors.
class MemoryCatalog : public StepCatalog {
 public:
  void Apply(std::span<const Fact> facts);

  // Deletions() leaves these out from now on.
  void ForgetGarbage(std::span<const AttemptId> attempts);

  uint64_t last_sequence() const override;
  absl::StatusOr<std::optional<StepRecord>> Find(int64_t step) const override;
  absl::StatusOr<std::optional<StepRecord>> FindAtOrBelow(int64_t step) const override;
  absl::StatusOr<std::optional<StepRecord>> FindCommittedAtOrBelow(int64_t step) const override;
  absl::Status ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step = 0) const override;
  absl::StatusOr<CommittedSteps> Committed() const override;
  absl::StatusOr<std::optional<int64_t>> LatestCommitted() const override;
  absl::StatusOr<std::optional<StepRecord>> FindBest(std::string_view metric, BestMode mode) const override;
  absl::StatusOr<BestModes> RecordedBestModes() const override;
  absl::StatusOr<std::vector<SavePhase>> Phases(int64_t step, std::string_view attempt) const override;
  absl::StatusOr<bool> IsReferenced(const AttemptId& attempt) const override;
  absl::StatusOr<std::vector<DeletionRecord>> Deletions() const override;
  absl::StatusOr<std::vector<DeletionRequestFact>> Requests() const override;

 private:
  mutable absl::Mutex mutex_;
  StoreState state_ ABSL_GUARDED_BY(mutex_);
  std::set<AttemptId> forgotten_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_MEMORY_CATALOG_H_
