// The phases of a save, as the index keeps them beside the step's record, so that listing steps does not read them. No
// I/O, no RocksDB.
//
//   "phases/" be64(step) -> PhasesRecord
//
// The value is a JSON object with a "version", as those of manifest_records.h are. In the first format another attempt
// could be put in the step's place without it: the attempt says whose phases they are.

#ifndef TIDEMARK_STORAGE_RECORDS_PHASES_RECORD_H_
#define TIDEMARK_STORAGE_RECORDS_PHASES_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

inline constexpr int kPhasesRecordVersion = 1;
inline constexpr std::string_view kPhasesKeyPrefix = "phases/";

struct PhasesRecord {
  int64_t step = 0;     // only in the key
  std::string attempt;  // 32 hexadecimal digits
  // Phases of the same name and lane follow each other.
  std::vector<SavePhase> phases;
};

// The times of a phase as records have them, in microseconds, cut off. Ends are cut off as well as beginnings, so that
// what followed something still does. Each time and the end are 0 to kPhaseMicrosecondsMax, ten thousand years: what
// lies beyond would overflow where times are added.
inline constexpr int64_t kPhaseMicrosecondsMax = int64_t{10'000} * 366 * 86400 * 1'000'000;
struct PhaseTimes {
  int64_t begin = 0;
  int64_t duration = 0;
  int64_t busy = 0;  // <= duration
};
PhaseTimes TimesOfPhase(const SavePhase& phase);

// Times become those of TimesOfPhase.
std::string EncodePhasesRecord(const PhasesRecord& record);

// All but the step. kDataLoss: not such a record; the message says what is wrong. kUnimplemented: written by a newer
// version.
absl::StatusOr<PhasesRecord> DecodePhasesRecord(std::string_view bytes);

// Keys sort like their steps. Precondition: step >= 0.
std::string PhasesKey(int64_t step);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_PHASES_RECORD_H_
