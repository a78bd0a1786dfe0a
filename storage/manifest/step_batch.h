// The record of a step and its index keys, as one batch changes them.

#ifndef TIDEMARK_STORAGE_MANIFEST_STEP_BATCH_H_
#define TIDEMARK_STORAGE_MANIFEST_STEP_BATCH_H_

#include <optional>

#include "absl/status/statusor.h"
#include "rocksdb/write_batch.h"
#include "storage/manifest/manifest_records.h"

namespace tidemark::storage {

// Puts the record and its index keys in the place of `old` and its own. Returns it as it will be read: names that are
// no UTF-8 have been replaced by then. kInvalidArgument: it could not be read again.
absl::StatusOr<StepInfo> PutStep(rocksdb::WriteBatch& batch, const std::optional<StepRecord>& old,
                                 const StepRecord& record);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_STEP_BATCH_H_
