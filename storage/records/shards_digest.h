// Which shards a step has, in 16 bytes however many ranks have saved it.

#ifndef TIDEMARK_STORAGE_RECORDS_SHARDS_DIGEST_H_
#define TIDEMARK_STORAGE_RECORDS_SHARDS_DIGEST_H_

#include <cstdint>

#include "storage/bytes/ids.h"

namespace tidemark::storage {

// If a shard changes its rank, its size or its index, the digest changes. It finds accidents, not attacks: an attacker
// can make other shards that have the same digest. A value; Add takes constant time.
class ShardsDigest {
 public:
  ShardsDigest() = default;                                            // of no shards
  explicit ShardsDigest(const Digest128& digest) : digest_(digest) {}  // as digest() gave it

  // Precondition: no shard of this rank is in it; the same shard twice cancels out.
  void Add(uint32_t rank, uint64_t file_bytes, const Digest128& index_digest);
  // Precondition: no rank is in both.
  void Add(const ShardsDigest& others);

  const Digest128& digest() const { return digest_; }
  friend bool operator==(const ShardsDigest&, const ShardsDigest&) = default;

 private:
  // The exclusive or of the XXH3-128 of each shard's rank (u32), bytes (u64) and index digest, little-endian. So ranks
  // may be added in any order, and what a rank says of its own shard is a part of the whole.
  Digest128 digest_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_SHARDS_DIGEST_H_
