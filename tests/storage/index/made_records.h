// Records of steps as tests make them, and how they get into an index.

#ifndef TIDEMARK_TESTS_STORAGE_INDEX_MADE_RECORDS_H_
#define TIDEMARK_TESTS_STORAGE_INDEX_MADE_RECORDS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/index/manifest.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"

namespace tidemark::storage {

// The identifier of the attempt begins with the byte `attempt` and has zeros behind it.
inline StepRecord MakeRecord(int64_t step, uint8_t attempt, uint64_t sequence) {
  StepRecord record;
  record.info.step = step;
  record.info.attempt = ToHex(AttemptId{{attempt}}.bytes);
  record.info.sequence = sequence;
  return record;
}
inline StepRecord MakeRecord(int64_t step, uint8_t attempt) { return MakeRecord(step, attempt, attempt); }

// Applies the facts as the next entry of a journal.
inline absl::Status ApplyFacts(Manifest& manifest, const std::vector<Fact>& facts) {
  const absl::StatusOr<std::optional<JournalPlace>> place = manifest.Applied();
  if (!place.ok()) return place.status();
  return manifest.Apply({.number = place->value_or(JournalPlace()).number + 1, .epoch = 1}, facts);
}
inline absl::Status ApplyRecord(Manifest& manifest, StepRecord record) {
  return ApplyFacts(manifest, {StepFact{std::move(record)}});
}
inline absl::Status ApplyState(Manifest& manifest, const StepRecord& of, StepState state) {
  return ApplyFacts(manifest, {StateFact{.step = of.info.step, .attempt = of.info.attempt, .state = state}});
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_INDEX_MADE_RECORDS_H_
