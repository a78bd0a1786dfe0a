#include "storage/records/shards_digest.h"

#include <cstddef>

#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"

namespace tidemark::storage {

void ShardsDigest::Add(uint32_t rank, uint64_t file_bytes, const Digest128& index_digest) {
  ByteWriter shard;
  shard.Put<uint32_t>(rank);
  shard.Put<uint64_t>(file_bytes);
  shard.PutBytes16(index_digest.bytes);
  Add(ShardsDigest(DigestOf(AsBytes(shard.view()))));
}

void ShardsDigest::Add(const ShardsDigest& others) {
  for (size_t i = 0; i < digest_.bytes.size(); ++i) digest_.bytes[i] ^= others.digest_.bytes[i];
}

}  // namespace tidemark::storage
