// RecordCheck: whether a store's records can be read, and what in the store no record names. No byte of a step is read
// for it.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_RECORD_CHECK_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_RECORD_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"

namespace tidemark::inspect {

// The index of the journal. Whatever is wrong with it, nothing is lost: the next opening for writing makes it anew.
struct IndexCheck {
  uint64_t entry = 0;    // the last one that it has applied
  absl::Status problem;  // kDataLoss: it is damaged, of another journal, or says something else
};

// An attempt that no record names: a save that was cut short, and will never be committed.
struct UnfinishedAttempt {
  int64_t step = 0;
  std::string attempt;  // 32 hexadecimal digits
};

struct RecordCheck {
  absl::Status identity;                      // kDataLoss: store.json is damaged
  absl::Status journal;                       // kDataLoss: it is missing, or entries are, are damaged or unreadable
  uint64_t entries = 0;                       // that the journal has
  std::optional<IndexCheck> index;            // nullopt: there is none, or it is not read
  std::vector<UnfinishedAttempt> unfinished;  // ascending by step; none if the journal cannot be read
  absl::Status error;                         // why something could not be looked at. kCancelled: interrupted
};

// Reads every entry of the journal, the index, store.json, and the names in steps/. Safe beside a process that holds
// the store: what it is saving is not unfinished. `directory`: the store's, without links. `trusted`: false leaves the
// index out, which RocksDB would read.
RecordCheck CheckRecords(storage::FileSystem& files, const std::string& directory, const storage::StoreId& store,
                         bool trusted);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_RECORD_CHECK_H_
