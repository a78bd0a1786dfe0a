// Looks for damage in all shards of an attempt.

#ifndef TIDEMARK_STORAGE_STORE_ATTEMPT_VERIFY_H_
#define TIDEMARK_STORAGE_STORE_ATTEMPT_VERIFY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/records/manifest_records.h"
#include "storage/shard/read/shard_verify.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// The number of missing shards that are listed; one more item counts the others. A record may say that there are four
// billion.
inline constexpr size_t kMissingShardsListedMax = 100;

struct AttemptVerifyOptions {
  ShardReadOptions read;
  ChunkSample sample;
  // Called on the caller's thread with the number of bytes that were read since the last call. May be null.
  std::function<void(uint64_t)> progress;
  // Asked on any thread; the work ends with kCancelled when it returns true. May be null.
  std::function<bool()> cancelled;
};

struct AttemptVerification {
  uint64_t bytes_read = 0;
  uint64_t chunks = 0;        // that were read
  uint64_t chunks_total = 0;  // that the indices have
  // Rank by rank, as VerifyShard lists it. If the shards are sound and not those that were committed, the first item,
  // of the folder, says so.
  std::vector<ShardDamage> damage;

  // Whether all damage is in bytes that no restore reads.
  bool restorable() const;
};

// Reads the shards of the ranks 0 to world_size - 1 as VerifyShard does. A Status that is not ok means that reading
// itself failed. Precondition: the record's attempt is a valid id.
absl::StatusOr<AttemptVerification> VerifyAttempt(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                                  const StepRecord& record, const AttemptVerifyOptions& options);

// The same for a caller that needs no list. kDataLoss: a restore would come upon damage; the message names the first.
absl::Status CheckAttempt(FileSystem& files, const StoreLayout& layout, const StoreId& store, const StepRecord& record,
                          const AttemptVerifyOptions& options);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_ATTEMPT_VERIFY_H_
