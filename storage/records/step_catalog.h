// StepCatalog: questions about the steps of a store. The index (RocksDB) answers them, or a journal that was replayed
// in memory (storage/store/memory_catalog.h).

#ifndef TIDEMARK_STORAGE_RECORDS_STEP_CATALOG_H_
#define TIDEMARK_STORAGE_RECORDS_STEP_CATALOG_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/records/best_modes.h"
#include "storage/records/fact.h"
#include "storage/records/kept_steps.h"
#include "storage/records/manifest_records.h"

namespace tidemark::storage {

// Errors are those of what answers; a catalog in memory has none.
class StepCatalog {
 public:
  virtual ~StepCatalog() = default;

  // The highest sequence of all attempts that were ever committed, or have failed; 0 if there was none.
  virtual uint64_t last_sequence() const = 0;

  // nullopt if there is no record of the step.
  virtual absl::StatusOr<std::optional<StepRecord>> Find(int64_t step) const = 0;

  // The record of the highest step that is <= `step`; the second: of the highest committed one. nullopt if there is
  // none.
  virtual absl::StatusOr<std::optional<StepRecord>> FindAtOrBelow(int64_t step) const = 0;
  virtual absl::StatusOr<std::optional<StepRecord>> FindCommittedAtOrBelow(int64_t step) const = 0;

  // All records from `first_step` on, ascending by step, until `visit` returns false. `visit` must not use the catalog.
  virtual absl::Status ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step = 0) const = 0;

  // All committed steps at one moment, without the fields that KeptStep leaves out.
  virtual absl::StatusOr<CommittedSteps> Committed() const = 0;

  // The highest committed step; nullopt if there is none.
  virtual absl::StatusOr<std::optional<int64_t>> LatestCommitted() const = 0;

  // The record of the committed, healthy step whose metric of that name is the lowest or highest; of several such steps
  // the last one's. Values that are not finite do not count. nullopt if no such step has the metric.
  virtual absl::StatusOr<std::optional<StepRecord>> FindBest(std::string_view metric, BestMode mode) const = 0;

  // The best mode of each metric for which a trainer has recorded one.
  virtual absl::StatusOr<BestModes> RecordedBestModes() const = 0;

  // The phases of the save that has made this attempt at the step; empty: they are not known.
  virtual absl::StatusOr<std::vector<SavePhase>> Phases(int64_t step, std::string_view attempt) const = 0;

  // Whether any step that is not deleted has chunks in files of the attempt, its own apart.
  virtual absl::StatusOr<bool> IsReferenced(const AttemptId& attempt) const = 0;

  // Attempts that no step has any more and whose files are not known to be gone.
  virtual absl::StatusOr<std::vector<DeletionRecord>> Deletions() const = 0;

  // Requests to delete a step that were not answered, by the time when they were made.
  virtual absl::StatusOr<std::vector<DeletionRequestFact>> Requests() const = 0;
};

// Puts requests into the order that StepCatalog::Requests has.
inline void SortRequests(std::vector<DeletionRequestFact>& requests) {
  std::sort(requests.begin(), requests.end(), [](const DeletionRequestFact& a, const DeletionRequestFact& b) {
    return std::tie(a.asked, a.id) < std::tie(b.asked, b.id);
  });
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_STEP_CATALOG_H_
