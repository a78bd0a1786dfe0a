// What is in the shards of seeds.

#ifndef TIDEMARK_FUZZ_SEEDS_SEED_CONTENTS_H_
#define TIDEMARK_FUZZ_SEEDS_SEED_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "storage/shard/format/shard_format.h"

namespace tidemark::fuzz {

inline constexpr uint32_t kSeedChunkBytes = storage::kChunkBytesMin;

// Numbers as weights have them, near enough: random signs and mantissas, few exponents.
std::string Floats(size_t count);

// A shard's contents as its index has them. `data` lies behind the header.
struct SeedContents {
  std::string data;
  storage::ShardIndex index;

  void Add(EntrySpec spec, std::string_view raw, uint8_t float_bytes, bool compress);
};

// Entries of every kind, tied ones, metrics, properties and metadata.
SeedContents MixedContents();

// Three boxes of a tensor, one of them empty, and a text.
SeedContents BoxesContents();

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_SEEDS_SEED_CONTENTS_H_
