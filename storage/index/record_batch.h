// Records as a batch puts them into the index, a step's with its index keys. Each is read again before it is put.
// kInvalidArgument: it could not be, or it would be read as another; the batch is as it was.

#ifndef TIDEMARK_STORAGE_INDEX_RECORD_BATCH_H_
#define TIDEMARK_STORAGE_INDEX_RECORD_BATCH_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rocksdb/write_batch.h"
#include "storage/journal/journal_view.h"
#include "storage/records/best_modes.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "storage/records/phases_record.h"

namespace tidemark::storage {

// Puts the record and its index keys in the place of `old` and its own. Returns it as it will be read: names that are
// no UTF-8 have been replaced by then.
absl::StatusOr<StepInfo> PutStep(rocksdb::WriteBatch& batch, const std::optional<StepRecord>& old,
                                 const StepRecord& record);

// A place's value, and back. kDataLoss: it is none.
std::string EncodePlace(const JournalPlace& place);
absl::StatusOr<JournalPlace> DecodePlace(std::string_view bytes);

absl::Status PutStore(rocksdb::WriteBatch& batch, const StoreRecord& record);
absl::Status PutPhases(rocksdb::WriteBatch& batch, const PhasesRecord& record);
absl::Status PutDeletion(rocksdb::WriteBatch& batch, const DeletionRecord& record);
absl::Status PutBestModes(rocksdb::WriteBatch& batch, const BestModes& modes);
absl::Status PutRequest(rocksdb::WriteBatch& batch, const DeletionRequestFact& request);
void RemoveRequest(rocksdb::WriteBatch& batch, std::string_view id);
void PutApplied(rocksdb::WriteBatch& batch, const JournalPlace& place);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_RECORD_BATCH_H_
