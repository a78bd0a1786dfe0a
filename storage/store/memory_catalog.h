// MemoryCatalog: what the facts of a store's journal say, in memory. It answers where there is no index, or where the
// index cannot be used. No I/O.

#ifndef TIDEMARK_STORAGE_STORE_MEMORY_CATALOG_H_
#define TIDEMARK_STORAGE_STORE_MEMORY_CATALOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/bytes/ids.h"
#include "storage/records/fact.h"
#include "storage/records/step_catalog.h"

namespace tidemark::storage {

// Takes facts in the order of the journal and answers as Manifest does. Thread-safe: several threads may ask while one
// brings it up to date. Has no errors.
//
// Records are kept packed, but for the `unpacked_max` that changed last: facts mostly follow their step closely. A step
// with four evaluations takes about a KiB.
class MemoryCatalog final : public StepCatalog {
 public:
  static constexpr size_t kUnpackedMax = 512;

  // Precondition: unpacked_max >= 1.
  explicit MemoryCatalog(size_t unpacked_max = kUnpackedMax) : unpacked_max_(unpacked_max) {}

  // `facts`: as DecodeFact returns them. A PhasesFact counts only behind the StepFact of its attempt.
  void Apply(std::span<const Fact> facts);

  // The files of these attempts are gone: Deletions() leaves them out from now on.
  void ForgetGarbage(std::span<const AttemptId> attempts);

  uint64_t last_sequence() const override;
  absl::StatusOr<std::optional<StepRecord>> Find(int64_t step) const override;
  absl::StatusOr<std::optional<StepRecord>> FindAtOrBelow(int64_t step) const override;
  absl::StatusOr<std::optional<StepRecord>> FindCommittedAtOrBelow(int64_t step) const override;
  absl::Status ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step = 0) const override;
  absl::StatusOr<CommittedSteps> Committed() const override;
  absl::StatusOr<std::optional<int64_t>> LatestCommitted() const override;
  // Looks at all committed steps.
  absl::StatusOr<std::optional<StepRecord>> FindBest(std::string_view metric, BestMode mode) const override;
  absl::StatusOr<BestModes> RecordedBestModes() const override;
  absl::StatusOr<std::vector<SavePhase>> Phases(int64_t step, std::string_view attempt) const override;
  absl::StatusOr<bool> IsReferenced(const AttemptId& attempt) const override;
  // Ordered by attempt.
  absl::StatusOr<std::vector<DeletionRecord>> Deletions() const override;
  absl::StatusOr<std::vector<DeletionRequestFact>> Requests() const override;

 private:
  struct Held {
    std::string packed;  // as RecordWriter::PutStep has it; empty while `record` is there
    // Only of the steps in unpacked_, and then with a value: ApplyToStep takes records that may be none.
    std::unique_ptr<std::optional<StepRecord>> record;
    bool healthy = true;  // info.unhealthy() is empty
  };

  static StepRecord Unpack(const Held& held);
  static std::optional<double> MetricOf(const Held& held, std::string_view metric);

  void ApplyOne(const Fact& fact) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyToRecord(int64_t step, const Fact& fact) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyPhases(const PhasesRecord& phases) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the record out of the indices, or into them.
  void Index(const StepRecord& record, bool into) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the record unpacked, and packs the one that has been so for longest where there are too many.
  void Hold(int64_t step, Held& held, std::unique_ptr<std::optional<StepRecord>> record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t unpacked_max_;

  mutable absl::Mutex mutex_;
  absl::btree_map<int64_t, Held> steps_ ABSL_GUARDED_BY(mutex_);
  // The steps whose record is unpacked, in the order in which they became so.
  std::deque<int64_t> unpacked_ ABSL_GUARDED_BY(mutex_);
  absl::btree_set<int64_t> committed_ ABSL_GUARDED_BY(mutex_);
  // How many records refer to the attempt; never 0.
  absl::btree_map<AttemptId, uint32_t> references_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<AttemptId, DeletionRecord> garbage_ ABSL_GUARDED_BY(mutex_);
  // As RecordWriter::PutPhases has them; of the attempt that the step has.
  absl::btree_map<int64_t, std::string> phases_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, DeletionRequestFact> requests_ ABSL_GUARDED_BY(mutex_);  // not answered yet, by id
  BestModes best_modes_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_MEMORY_CATALOG_H_
