// Sizes that the encoder and the decoder of the index share. See docs/format.md for the fields.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_INDEX_LAYOUT_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_INDEX_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "storage/shard/format/shard_format.h"

namespace tidemark::storage {

inline constexpr std::string_view kIndexMagic = "TMKINDEX";
inline constexpr size_t kIndexPreambleBytes = 56;
inline constexpr std::string_view kDeltaMagic = "TMKDELTA";
inline constexpr size_t kDeltaPreambleBytes = 32;  // behind the other one
inline constexpr size_t kDeltaNumberBytes = 8;     // before each chunk and entry of a delta
inline constexpr size_t kFileReferenceBytes = 32;
inline constexpr size_t kChunkRecordBytes = 48;
inline constexpr size_t kEntryBytesMin = 24;     // and then the name and the extents
inline constexpr size_t kMetricBytesMin = 10;    // and then the name
inline constexpr size_t kPropertyBytesMin = 6;   // and then key and value
inline constexpr uint8_t kEntryHasBox = 1 << 0;  // a bit of the entry's flags

// Bytes of an entry in the table.
uint64_t EncodedEntryBytes(const ShardEntry& entry);

// No index has more zeros in a row. Each record has a field that is not zero, user metadata is JSON, and the longest
// text that may be zeros is the key of a property with its value (4 KiB and kPropertyBytesMax).
inline constexpr uint64_t kIndexZerosMax = 128 << 10;

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_INDEX_LAYOUT_H_
