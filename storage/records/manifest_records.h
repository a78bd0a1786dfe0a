// Keys and values of the index, and of the first format's manifest, as structs and pure functions between them and
// bytes. No I/O, no RocksDB.
//
//   "store"              -> StoreRecord
//   "step/" be64(step)   -> StepRecord; in the index a StepFact
//   "deleting/" attempt  -> DeletionRecord: an attempt that was deleted or replaced, until its files are gone
//   "best"               -> BestModes, of best_modes.h
//
// The other keys are in index_keys.h and phases_record.h.
//
// Values are JSON objects with a "version". Numbers that JSON cannot hold (NaN, infinities) are the strings "NaN",
// "Infinity" and "-Infinity".

#ifndef TIDEMARK_STORAGE_RECORDS_MANIFEST_RECORDS_H_
#define TIDEMARK_STORAGE_RECORDS_MANIFEST_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/records/shards_digest.h"
#include "storage/shard/format/shard_format.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// The store's own record says what else may be there, so that an older library refuses it before it reads or changes
// anything else. 1: no indices. 2: indices. 3: step and deletion records of version 2, and the index of
// committed steps.
inline constexpr int kStoreRecordVersion = 3;

// 2: evaluations, pins, why a step was kept, and the states kDeleted and kUnsaved. 3: one digest in place of the list
// of shards; an index of an earlier version may have such records.
inline constexpr int kStepRecordVersion = 3;

// 2: what the attempt refers to.
inline constexpr int kDeletionRecordVersion = 2;

struct StoreRecord {
  StoreId store_id;
  uint64_t sequence = 0;  // of the last committed attempt
  int version = kStoreRecordVersion;
};

// Whether a step in this state was committed and has not been deleted, so that its files may be there.
bool MayHaveFiles(StepState state);

// Whether a record in this state may be of no attempt.
bool MayLackAttempt(StepState state);

struct StepRecord {
  // `attempt` is a valid id; where the state is kFailed or kUnsaved it may be empty. A deleted step keeps its attempt,
  // but has no shards, references or user metadata.
  StepInfo info;
  ShardsDigest shards;                    // those of ranks 0 to world_size - 1 when the step was committed
  std::vector<FileReference> references;  // files of other attempts in which chunks of this step lie
};

// What is left of a record when its files are to go.
struct DeletionRecord {
  int64_t step = 0;
  AttemptId attempt;
  // Whose files hold chunks of it: they stay as long as a reader has this one. Unknown in version 1.
  std::vector<AttemptId> references;
};

// Of what a record's attempt has on disk. nullopt: nothing, or it was made when the step was deleted.
std::optional<DeletionRecord> DeletionOf(const StepRecord& record);

// Makes it the record of a deleted step: what is known of the step stays, what only its files made true does not.
void MakeDeleted(StepRecord& record, std::string_view reason);

std::string EncodeStoreRecord(const StoreRecord& record);
std::string EncodeDeletionRecord(const DeletionRecord& record);

// kDataLoss: not such a record; the message says what is wrong. kUnimplemented: written by a newer version.
absl::StatusOr<StoreRecord> DecodeStoreRecord(std::string_view bytes);
absl::StatusOr<StepRecord> DecodeStepRecord(std::string_view bytes);
absl::StatusOr<DeletionRecord> DecodeDeletionRecord(std::string_view bytes);

inline constexpr std::string_view kStoreKey = "store";
inline constexpr std::string_view kStepKeyPrefix = "step/";
inline constexpr std::string_view kDeletionKeyPrefix = "deleting/";

// Keys sort like their steps. Precondition: step >= 0.
std::string StepKey(int64_t step);
std::string DeletionKey(const AttemptId& attempt);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_MANIFEST_RECORDS_H_
