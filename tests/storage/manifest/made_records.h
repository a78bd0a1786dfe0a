// Records of steps as tests make them.

#ifndef TIDEMARK_TESTS_STORAGE_MANIFEST_MADE_RECORDS_H_
#define TIDEMARK_TESTS_STORAGE_MANIFEST_MADE_RECORDS_H_

#include <cstdint>

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

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_MANIFEST_MADE_RECORDS_H_
