// What the facts of a store's journal say, in memory. Readers ask it where the index cannot be used, and a lost index
// is written from it. No I/O.

#ifndef TIDEMARK_STORAGE_RECORDS_STORE_STATE_H_
#define TIDEMARK_STORAGE_RECORDS_STORE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "storage/bytes/ids.h"
#include "storage/records/best_modes.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// Takes facts in the order of the journal and answers as Manifest does. Thread-compatible.
//
// Records are kept packed, but for the `unpacked_max` that changed last: facts mostly follow their step closely. A step
// with four evaluations takes about a KiB.
class StoreState {
 public:
  static constexpr size_t kUnpackedMax = 512;

  // Precondition: unpacked_max >= 1.
  explicit StoreState(size_t unpacked_max = kUnpackedMax) : unpacked_max_(unpacked_max) {}

  // `fact`: as DecodeFact returns it. A PhasesFact counts only behind the StepFact of its attempt.
  void Apply(const Fact& fact);

  // The highest of all steps' attempts; 0 if there was none.
  uint64_t last_sequence() const { return last_sequence_; }
  size_t size() const { return steps_.size(); }  // steps with a record

  // nullopt: there is no record of such a step.
  std::optional<StepRecord> Find(int64_t step) const;
  std::optional<StepRecord> FindAtOrBelow(int64_t step) const;
  std::optional<StepRecord> FindCommittedAtOrBelow(int64_t step) const;

  // All records from `first_step` on, ascending by step, until `visit` returns false. `visit` must not use the state.
  void ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step = 0) const;

  const absl::btree_set<int64_t>& committed() const { return committed_; }
  std::optional<int64_t> LatestCommitted() const;

  // The record of the committed, healthy step whose metric of that name is the lowest or highest; of several such steps
  // the last one's. Values that are not finite do not count. nullopt: no such step has the metric. Looks at all
  // committed steps.
  std::optional<StepRecord> FindBest(std::string_view metric, BestMode mode) const;

  // Whether the record of any step that is not deleted refers to files of the attempt.
  bool IsReferenced(const AttemptId& attempt) const;

  const BestModes& recorded_best_modes() const { return best_modes_; }

  // The phases of the save that has made this attempt at the step; empty: they are not known.
  std::vector<SavePhase> Phases(int64_t step, std::string_view attempt) const;

  // Requests that no fact has answered yet, by id.
  const std::map<std::string, DeletionRequestFact>& requests() const { return requests_; }

  // Attempts that were a step's and whose files are not needed any more, ordered by attempt. They stay in the list when
  // their files are gone: no fact says so.
  std::vector<DeletionRecord> Deletions() const;

 private:
  struct Held {
    std::string packed;  // as RecordWriter::PutStep has it; empty while `record` is there
    // Only of the steps in unpacked_, and then with a value: ApplyToStep takes records that may be none.
    std::unique_ptr<std::optional<StepRecord>> record;
    bool healthy = true;  // info.unhealthy() is empty
  };

  static StepRecord Unpack(const Held& held);
  static std::optional<double> MetricOf(const Held& held, std::string_view metric);

  void ApplyToRecord(int64_t step, const Fact& fact);
  // Takes the record out of the indices, or into them.
  void Index(const StepRecord& record, bool into);
  // Makes the record unpacked, and packs the one that has been so for longest where there are too many.
  void Hold(int64_t step, Held& held, std::unique_ptr<std::optional<StepRecord>> record);
  void ApplyPhases(const PhasesRecord& phases);

  size_t unpacked_max_;
  absl::btree_map<int64_t, Held> steps_;
  std::deque<int64_t> unpacked_;  // the steps whose record is unpacked, in the order in which they became so
  absl::btree_set<int64_t> committed_;
  absl::btree_map<AttemptId, uint32_t> references_;  // how many records refer to the attempt; never 0
  absl::btree_map<AttemptId, DeletionRecord> garbage_;
  absl::btree_map<int64_t, std::string> phases_;  // as RecordWriter::PutPhases has it; of the attempt that the step has
  std::map<std::string, DeletionRequestFact> requests_;
  BestModes best_modes_;
  uint64_t last_sequence_ = 0;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_STORE_STATE_H_
