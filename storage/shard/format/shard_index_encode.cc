#include <algorithm>

#include "fmt/format.h"
#include "storage/bytes/byte_writer.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/format/shard_index_layout.h"

namespace tidemark::storage {
namespace {

void PutExtents(const std::vector<int64_t>& extents, ByteWriter* out) {
  for (int64_t extent : extents) out->Put<int64_t>(extent);
}

void PutChunk(const ChunkRecord& chunk, ByteWriter* out) {
  out->Put<uint8_t>(static_cast<uint8_t>(chunk.codec));
  out->Put<uint8_t>(chunk.float_bytes);
  out->Put<uint16_t>(chunk.file);
  out->Put<uint32_t>(chunk.raw_bytes);
  out->Put<uint32_t>(chunk.stored_bytes);
  out->Put<uint32_t>(0);
  out->Put<uint64_t>(chunk.offset);
  out->Put<uint64_t>(chunk.checksum);
  out->PutBytes16(chunk.digest.bytes);
}

void PutEntry(const ShardEntry& entry, ByteWriter* out) {
  const EntrySpec& spec = entry.spec;
  out->Put<uint16_t>(spec.name.size());
  out->Put<uint8_t>(static_cast<uint8_t>(spec.kind));
  out->Put<uint8_t>(spec.whole() ? 0 : kEntryHasBox);
  out->Put<uint16_t>(static_cast<uint16_t>(spec.dtype));
  out->Put<uint16_t>(spec.shape.size());
  out->Put<uint64_t>(entry.first_chunk);
  out->Put<uint64_t>(entry.chunk_count);
  out->PutText(spec.name);
  PutExtents(spec.shape, out);
  PutExtents(spec.box_offset, out);
  PutExtents(spec.box_extent, out);
}

uint64_t CountOf(const std::vector<bool>& bits) {
  return static_cast<uint64_t>(std::count(bits.begin(), bits.end(), true));
}

absl::Status CheckKey(std::string_view what, std::string_view key) {
  if (!key.empty() && key.size() <= EntrySpec::kNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} '{}': expected a name of 1 to {} bytes, found {} bytes", what,
                                                key.substr(0, 200), EntrySpec::kNameBytesMax, key.size()));
}

}  // namespace

uint64_t EncodedEntryBytes(const ShardEntry& entry) {
  const EntrySpec& spec = entry.spec;
  const size_t extents = spec.shape.size() + spec.box_offset.size() + spec.box_extent.size();
  return kEntryBytesMin + spec.name.size() + sizeof(int64_t) * extents;
}

uint64_t EncodedShardIndexBytes(const ShardIndex& index, const IndexBase& base) {
  uint64_t bytes = kIndexPreambleBytes + kFileReferenceBytes * index.files.size() + index.user_metadata.size();
  for (const auto& [name, value] : index.metrics) bytes += kMetricBytesMin + name.size();
  for (const auto& [key, value] : index.properties) bytes += kPropertyBytesMin + key.size() + value.size();
  if (base.file == 0) {
    bytes += kChunkRecordBytes * index.chunks.size();
    for (const ShardEntry& entry : index.entries) bytes += EncodedEntryBytes(entry);
    return bytes;
  }
  bytes += kDeltaPreambleBytes + (kDeltaNumberBytes + kChunkRecordBytes) * CountOf(base.changed_chunks);
  for (size_t i = 0; i < index.entries.size(); ++i) {
    if (base.changed_entries[i]) bytes += kDeltaNumberBytes + EncodedEntryBytes(index.entries[i]);
  }
  return bytes;
}

std::string EncodeShardIndex(const ShardIndex& index, const IndexBase& base) {
  const bool is_delta = base.file != 0;
  ByteWriter out;
  out.Reserve(EncodedShardIndexBytes(index, base));
  out.PutText(is_delta ? kDeltaMagic : kIndexMagic);
  out.Put<uint64_t>(index.chunks.size());
  out.Put<uint64_t>(index.entries.size());
  out.Put<uint32_t>(index.files.size());
  out.Put<uint32_t>(index.metrics.size());
  out.Put<uint32_t>(index.properties.size());
  out.Put<uint32_t>(index.user_metadata.size());
  out.Put<int64_t>(index.created_unix_ns);
  out.Put<uint64_t>(index.blocked_ns);
  if (is_delta) {
    out.PutBytes16(base.digest.bytes);
    out.Put<uint32_t>(base.file);
    out.Put<uint32_t>(CountOf(base.changed_entries));
    out.Put<uint64_t>(CountOf(base.changed_chunks));
  }
  for (const FileReference& file : index.files) {
    out.PutBytes16(file.attempt.bytes);
    out.Put<int64_t>(file.step);
    out.Put<uint32_t>(file.rank);
    out.Put<uint32_t>(file.world_size);
  }
  for (size_t i = 0; i < index.chunks.size(); ++i) {
    if (is_delta && !base.changed_chunks[i]) continue;
    if (is_delta) out.Put<uint64_t>(i);
    PutChunk(index.chunks[i], &out);
  }
  for (size_t i = 0; i < index.entries.size(); ++i) {
    if (is_delta && !base.changed_entries[i]) continue;
    if (is_delta) out.Put<uint64_t>(i);
    PutEntry(index.entries[i], &out);
  }
  for (const auto& [name, value] : index.metrics) {
    out.PutDouble(value);
    out.Put<uint16_t>(name.size());
    out.PutText(name);
  }
  for (const auto& [key, value] : index.properties) {
    out.Put<uint16_t>(key.size());
    out.Put<uint32_t>(value.size());
    out.PutText(key);
    out.PutText(value);
  }
  out.PutText(index.user_metadata);
  return std::move(out).Take();
}

absl::Status ValidateShardTexts(const std::map<std::string, double>& metrics, std::string_view user_metadata,
                                const std::map<std::string, std::string>& properties) {
  for (const auto& [name, value] : metrics) {
    if (auto status = CheckKey("metric", name); !status.ok()) return status;
  }
  if (user_metadata.size() > kUserMetadataBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("user metadata: expected at most {} bytes, found {}", kUserMetadataBytesMax, user_metadata.size()));
  }
  for (const auto& [key, value] : properties) {
    if (auto status = CheckKey("property", key); !status.ok()) return status;
    if (value.size() > kPropertyBytesMax) {
      return absl::InvalidArgumentError(
          fmt::format("property '{}': expected at most {} bytes, found {}", key, kPropertyBytesMax, value.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tidemark::storage
