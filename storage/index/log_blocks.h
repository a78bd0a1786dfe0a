// Checks the physical records of RocksDB's logs: whether they are whole and as they were written. Write-ahead logs and
// the list of files (MANIFEST-*) have the same form. RocksDB's reader for followers takes an unexpected record for one
// of an older log, and waits for ever for the next. No I/O.

#ifndef TIDEMARK_STORAGE_INDEX_LOG_BLOCKS_H_
#define TIDEMARK_STORAGE_INDEX_LOG_BLOCKS_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tidemark::storage {

// A log is cut into blocks, and no physical record crosses the end of one (RocksDB's db/log_format.h).
inline constexpr size_t kLogBlockBytes = 32 << 10;

struct SoundRecords {
  size_t bytes = 0;    // from the first record to the end of the last sound one
  std::string damage;  // the fault of the record behind them; empty: none, or the record is incomplete so far
};

// Checks the bytes of one block from the beginning of a record on, as far as the file has them. `block_left`: the
// number of bytes from there to the end of the block. Zeros at the beginning of a record are not damage, and end the
// check.
SoundRecords FindSoundRecords(std::string_view bytes, size_t block_left);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_LOG_BLOCKS_H_
