// What the index reads through RocksDB's iterators.

#ifndef TIDEMARK_STORAGE_INDEX_KEY_ITERATION_H_
#define TIDEMARK_STORAGE_INDEX_KEY_ITERATION_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rocksdb/iterator.h"
#include "rocksdb/slice.h"
#include "storage/records/manifest_records.h"

namespace tidemark::storage {

inline std::string_view View(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }
inline rocksdb::Slice Slice(std::string_view text) { return {text.data(), text.size()}; }

inline bool IsOn(const rocksdb::Iterator& it, std::string_view prefix) {
  return it.Valid() && it.key().starts_with(Slice(prefix));
}

// The same error, with the database's path and the key of the record that could not be read.
absl::Status Located(const absl::Status& status, const std::string& path, std::string_view key);

// A step's value: the fact that assigns the record, as in the journal. The first format's manifest has JSON there.
// kDataLoss: it is neither. kUnimplemented: a newer version wrote it.
absl::StatusOr<StepRecord> DecodeStepValue(std::string_view bytes);

// The record at an iterator that stands on a step's key. kDataLoss: it is damaged, or another step's. `path`: for the
// message.
absl::StatusOr<StepRecord> RecordAt(const rocksdb::Iterator& it, const std::string& path);

// Puts `it` on the key of the best step; where none has the metric, elsewhere.
void SeekBest(rocksdb::Iterator& it, std::string_view metric, BestMode mode);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_KEY_ITERATION_H_
