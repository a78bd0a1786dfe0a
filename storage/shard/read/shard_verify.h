// Looks for damage in a shard: every byte of its file is read and held against something, or, of the chunks, a sample.

#ifndef TIDEMARK_STORAGE_SHARD_READ_SHARD_VERIFY_H_
#define TIDEMARK_STORAGE_SHARD_READ_SHARD_VERIFY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/read/shard_reader.h"

namespace tidemark::storage {

// The number of damaged places of a shard that are listed; one more item counts the others. A damaged chunk may take 64
// bytes in a file, and kilobytes in a list.
inline constexpr size_t kDamageListedMax = 1000;
// When a list has this many names, no entry is named again: the names of many chunks of many tied entries are a product
// of both.
inline constexpr size_t kNamesRepeatedMax = 4096;

struct ShardDamage {
  std::string path;  // of the file with the damage: the shard's, or that of one it refers to
  std::string what;  // with offset, expected and found
  // Names of the entries that lose data. After kNamesRepeatedMax names, only names that the list does not have yet.
  // Empty: there are no such entries, or the shard cannot be read at all.
  std::vector<std::string> entries;
  // The file says that it is of a newer version or of another store, or it is not a regular file: perhaps nothing is
  // damaged, and it is not this store's to judge.
  bool foreign = false;
  // It is in bytes that belong to nothing, between chunks or behind the index: no reader of entries comes upon it, and
  // all of them read as they were written.
  bool unused = false;
};

struct ShardVerification {
  uint64_t bytes_read = 0;
  uint64_t chunks = 0;        // that were read
  uint64_t chunks_total = 0;  // that the index has
  bool readable = false;      // header, footer and index are sound, and so is what was read and is not in `damage`
  // By file and offset; empty: sound. If there are more than kDamageListedMax places, one more item counts the others,
  // and names the entries that only those affect.
  std::vector<ShardDamage> damage;
};

// Which of a shard's chunks are read.
struct ChunkSample {
  double share = 1;  // 0 to 1, of the chunks, rounded up. Below 1 the bytes between chunks are not read either
  uint64_t seed =
      0;  // of the same shard the same seed draws the same chunks; a share draws all that a smaller one does
};

// What VerifyShard will read of a sound shard: its file, and the chunks that it uses of others.
uint64_t VerifyBytes(const ShardFooter& footer, const ShardIndex& index);

// Reads the whole file and every referenced chunk: header, index and footer, every chunk's checksum, decoding and
// digest, and that all other bytes are zero. A single changed byte anywhere is found. Where `expected` is not null, a
// sound shard of another identity is damage too; so is one of a newer version, since a flipped bit can make it one, and
// a file that is cut short or gone. With a sample, what was not drawn of the chunks, and what lies between them, may be
// damaged all the same.
//
// A Status that is not ok means that reading itself failed. `progress(n)`, if set, is called on this thread with the
// bytes read since the last call. `cancelled`, if set, is asked before each chunk, on several threads: kCancelled once
// it says yes.
absl::StatusOr<ShardVerification> VerifyShard(FileSystem& files, const std::string& path,
                                              const std::string& steps_directory, const ShardIdentity* expected,
                                              const ShardReadOptions& options,
                                              const std::function<void(uint64_t)>& progress = nullptr,
                                              const ChunkSample& sample = {},
                                              const std::function<bool()>& cancelled = nullptr);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_READ_SHARD_VERIFY_H_
