// Sizes that the encoder and the decoder of the index share. See docs/format.md for the fields.

#ifndef TIDEMARK_STORAGE_SHARD_SHARD_INDEX_LAYOUT_H_
#define TIDEMARK_STORAGE_SHARD_SHARD_INDEX_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tidemark::storage {

inline constexpr std::string_view kIndexMagic = "TMKINDEX";
inline constexpr size_t kIndexPreambleBytes = 56;
inline constexpr size_t kFileReferenceBytes = 32;
inline constexpr size_t kChunkRecordBytes = 48;
inline constexpr size_t kEntryBytesMin = 24;     // and then the name and the extents
inline constexpr size_t kMetricBytesMin = 10;    // and then the name
inline constexpr size_t kPropertyBytesMin = 6;   // and then key and value
inline constexpr uint8_t kEntryHasBox = 1 << 0;  // a bit of the entry's flags

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_SHARD_INDEX_LAYOUT_H_
