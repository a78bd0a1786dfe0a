#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "storage/io/printable_text.h"
#include "storage/shard/byte_reader.h"
#include "storage/shard/shard_format.h"
#include "storage/shard/shard_index_layout.h"

namespace tidemark::storage {
namespace {

// An entry takes many times the bytes here that it may have in the index: no more memory is taken ahead than for these,
// whatever count an index of zeros claims.
constexpr uint64_t kEntriesReservedMax = 1 << 16;

struct Preamble {
  uint64_t chunk_count = 0;
  uint64_t entry_count = 0;
  uint32_t file_count = 0;
  uint32_t metric_count = 0;
  uint32_t property_count = 0;
  uint32_t user_metadata_bytes = 0;
};

Preamble GetPreamble(ByteReader* in, ShardIndex* index) {
  Preamble counts;
  if (in->GetText(kIndexMagic.size(), "magic") != kIndexMagic && in->ok()) {
    in->FailAt(0, "magic", "'TMKINDEX'", "something else");
  }
  counts.chunk_count = in->Get<uint64_t>("chunk count");
  counts.entry_count = in->Get<uint64_t>("entry count");
  counts.file_count = in->Get<uint32_t>("file count");
  if (counts.file_count > kFileReferencesMax) {
    in->Fail("file count", 4, fmt::format("at most {}", kFileReferencesMax), fmt::format("{}", counts.file_count));
  }
  counts.metric_count = in->Get<uint32_t>("metric count");
  counts.property_count = in->Get<uint32_t>("property count");
  counts.user_metadata_bytes = in->Get<uint32_t>("user metadata bytes");
  if (counts.user_metadata_bytes > kUserMetadataBytesMax) {
    in->Fail("user metadata bytes", 4, fmt::format("at most {}", kUserMetadataBytesMax),
             fmt::format("{}", counts.user_metadata_bytes));
  }
  index->created_unix_ns = in->Get<int64_t>("created");
  index->blocked_ns = in->Get<uint64_t>("blocked");
  return counts;
}

void GetFiles(uint32_t count, const ShardIdentity& self, ByteReader* in, std::vector<FileReference>* files) {
  if (!in->CheckCount(count, kFileReferenceBytes, "file count")) return;
  files->reserve(count);
  for (uint32_t i = 0; i < count && in->ok(); ++i) {
    const size_t start = in->offset();
    const auto fail = [&](std::string_view field, std::string_view expected, std::string_view found) {
      in->FailAt(start, fmt::format("{} of file {}", field, i + 1), expected, found);
    };
    FileReference file;
    file.attempt.bytes = in->GetBytes16("file attempt");
    file.step = in->Get<int64_t>("file step");
    file.rank = in->Get<uint32_t>("file rank");
    file.world_size = in->Get<uint32_t>("file world size");
    if (file.step < 0) fail("step", "0 or more", fmt::format("{}", file.step));
    if (file.rank >= file.world_size) {
      fail("rank", fmt::format("less than the world size, {}", file.world_size), fmt::format("{}", file.rank));
    }
    if (file.attempt == self.attempt && file.step == self.step && file.rank == self.rank) {
      fail("attempt", "another shard", "this shard itself");
    }
    files->push_back(file);
  }
}

// What can be said of a chunk by itself.
void CheckChunk(const ChunkRecord& chunk, uint64_t number, size_t start, size_t file_count, uint64_t index_offset,
                ByteReader* in) {
  const auto fail = [&](std::string_view field, std::string expected, uint64_t found) {
    in->FailAt(start, fmt::format("{} of chunk {}", field, number), expected, fmt::format("{}", found));
  };
  const uint64_t raw = chunk.raw_bytes;
  const uint64_t stored = chunk.stored_bytes;
  if (raw == 0 || raw > kChunkBytesMax) return fail("raw bytes", fmt::format("1 to {}", kChunkBytesMax), raw);
  switch (chunk.codec) {
    case Codec::kRaw:
      if (stored != raw) return fail("stored bytes", fmt::format("{}, the raw bytes of a raw chunk", raw), stored);
      break;
    case Codec::kZstd:
    case Codec::kPlanesZstd:
      if (stored == 0 || stored >= raw) {
        return fail("stored bytes", fmt::format("1 to {}, fewer than the raw bytes of a compressed chunk", raw - 1),
                    stored);
      }
      break;
    default:
      return fail("codec", "0, 1 or 2", static_cast<uint8_t>(chunk.codec));
  }
  if (chunk.codec != Codec::kPlanesZstd) {
    if (chunk.float_bytes != 0) return fail("float bytes", "0 where nothing was split", chunk.float_bytes);
  } else if (chunk.float_bytes != 2 && chunk.float_bytes != 4 && chunk.float_bytes != 8) {
    return fail("float bytes", "2, 4 or 8", chunk.float_bytes);
  } else if (raw % chunk.float_bytes != 0) {
    return fail("raw bytes", fmt::format("a multiple of the {} float bytes", chunk.float_bytes), raw);
  }
  if (chunk.file > file_count) return fail("file", fmt::format("at most {}", file_count), chunk.file);
  // Where the other file's chunks end is for its own index to say.
  const uint64_t end = chunk.file == 0 ? index_offset : std::numeric_limits<int64_t>::max();
  if (chunk.offset < kShardBlockBytes || chunk.offset > end || stored > end - chunk.offset) {
    return fail("offset", fmt::format("{} to {} less the {} stored bytes", kShardBlockBytes, end, stored),
                chunk.offset);
  }
  if (stored >= kAlignedChunkBytesMin && chunk.offset % kShardBlockBytes != 0) {
    return fail("offset", fmt::format("a multiple of {} for a chunk of {} stored bytes", kShardBlockBytes, stored),
                chunk.offset);
  }
}

// The chunks of this file, which may be in any order, must not share a byte.
void CheckOverlap(const std::vector<ChunkRecord>& chunks, size_t table_start, ByteReader* in) {
  std::vector<uint64_t> order;
  order.reserve(chunks.size());
  for (uint64_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].file == 0) order.push_back(i);
  }
  const auto by_offset = [&](uint64_t a, uint64_t b) {
    return std::pair(chunks[a].offset, a) < std::pair(chunks[b].offset, b);
  };
  if (!std::is_sorted(order.begin(), order.end(), by_offset)) std::sort(order.begin(), order.end(), by_offset);
  for (size_t i = 1; i < order.size(); ++i) {
    const ChunkRecord& before = chunks[order[i - 1]];
    const ChunkRecord& chunk = chunks[order[i]];
    if (chunk.offset - before.offset < before.stored_bytes) {
      in->FailAt(table_start + order[i] * kChunkRecordBytes, fmt::format("offset of chunk {}", order[i]),
                 fmt::format("{} or more, where chunk {} ends", before.offset + before.stored_bytes, order[i - 1]),
                 fmt::format("{}", chunk.offset));
      return;
    }
  }
}

void GetChunks(uint64_t count, size_t file_count, uint64_t index_offset, ByteReader* in,
               std::vector<ChunkRecord>* chunks) {
  if (!in->CheckCount(count, kChunkRecordBytes, "chunk count")) return;
  const size_t table_start = in->offset();
  chunks->reserve(count);
  for (uint64_t i = 0; i < count && in->ok(); ++i) {
    const size_t start = in->offset();
    ChunkRecord chunk;
    chunk.codec = static_cast<Codec>(in->Get<uint8_t>("chunk codec"));
    chunk.float_bytes = in->Get<uint8_t>("chunk float bytes");
    chunk.file = in->Get<uint16_t>("chunk file");
    chunk.raw_bytes = in->Get<uint32_t>("chunk raw bytes");
    chunk.stored_bytes = in->Get<uint32_t>("chunk stored bytes");
    in->SkipZeros(sizeof(uint32_t), "chunk padding");
    chunk.offset = in->Get<uint64_t>("chunk offset");
    chunk.checksum = in->Get<uint64_t>("chunk checksum");
    chunk.digest.bytes = in->GetBytes16("chunk digest");
    if (in->ok()) CheckChunk(chunk, i, start, file_count, index_offset, in);
    chunks->push_back(chunk);
  }
  if (in->ok()) CheckOverlap(*chunks, table_start, in);
}

std::vector<int64_t> GetExtents(size_t count, std::string_view field, ByteReader* in) {
  std::vector<int64_t> extents;
  if (!in->CheckCount(count, sizeof(int64_t), field)) return extents;
  extents.reserve(count);
  for (size_t d = 0; d < count; ++d) extents.push_back(in->Get<int64_t>(field));
  return extents;
}

// Decodes entries and holds their chunk ranges against the table.
class EntryTable {
 public:
  EntryTable(const std::vector<ChunkRecord>& chunks, uint32_t chunk_bytes, ByteReader* in)
      : chunks_(chunks), chunk_bytes_(chunk_bytes), in_(in) {}

  void Get(uint64_t count, std::vector<ShardEntry>* entries) {
    if (!in_->CheckCount(count, kEntryBytesMin, "entry count")) return;
    entries->reserve(std::min(count, kEntriesReservedMax));
    for (uint64_t i = 0; i < count && in_->ok(); ++i) {
      start_ = in_->offset();
      number_ = i;
      entries->push_back(GetEntry());
      if (in_->ok()) Check(entries->back());
    }
    if (in_->ok() && next_chunk_ != chunks_.size()) {
      in_->FailAt(in_->offset(), "chunks of all entries", fmt::format("all {} chunks of the table", chunks_.size()),
                  fmt::format("{}", next_chunk_));
    }
  }

 private:
  ShardEntry GetEntry() {
    ShardEntry entry;
    EntrySpec& spec = entry.spec;
    const auto name_bytes = in_->Get<uint16_t>("entry name bytes");
    spec.kind = static_cast<EntryKind>(in_->Get<uint8_t>("entry kind"));
    const auto flags = in_->Get<uint8_t>("entry flags");
    spec.dtype = static_cast<Dtype>(in_->Get<uint16_t>("entry dtype"));
    const auto dimensions = in_->Get<uint16_t>("entry dimensions");
    entry.first_chunk = in_->Get<uint64_t>("entry first chunk");
    entry.chunk_count = in_->Get<uint64_t>("entry chunk count");
    if (flags & ~kEntryHasBox) Fail("flags", "0 or 1", fmt::format("{}", flags));
    if (flags == kEntryHasBox && dimensions == 0) Fail("flags", "no box without dimensions", "a box");
    if (name_bytes > EntrySpec::kNameBytesMax) {
      Fail("name bytes", fmt::format("at most {}", EntrySpec::kNameBytesMax), fmt::format("{}", name_bytes));
    }
    if (dimensions > EntrySpec::kDimensionsMax) {
      Fail("dimensions", fmt::format("at most {}", EntrySpec::kDimensionsMax), fmt::format("{}", dimensions));
    }
    name_ = in_->GetText(name_bytes, "entry name");
    spec.name = name_;
    spec.shape = GetExtents(dimensions, "entry shape", in_);
    if (flags & kEntryHasBox) {
      spec.box_offset = GetExtents(dimensions, "entry box offset", in_);
      spec.box_extent = GetExtents(dimensions, "entry box extent", in_);
    }
    return entry;
  }

  void Check(const ShardEntry& entry) {
    uint64_t bytes = 0;
    if (auto status = ValidateEntry(entry.spec, &bytes); !status.ok()) {
      return Fail("description", "a valid one", std::string_view(status.message().data(), status.message().size()));
    }
    if (!names_.insert(name_).second) {
      return Fail("name", "one that no other entry has", fmt::format("'{}' again", PrintableText(entry.spec.name)));
    }
    const uint64_t count = bytes / chunk_bytes_ + (bytes % chunk_bytes_ != 0);
    if (entry.chunk_count != count) {
      return Fail("chunk count", fmt::format("{}, for {} bytes in chunks of {}", count, bytes, chunk_bytes_),
                  fmt::format("{}", entry.chunk_count));
    }
    CheckRange(entry);
    if (in_->ok()) CheckSizes(entry, bytes);
  }

  void CheckRange(const ShardEntry& entry) {
    const uint64_t first = entry.first_chunk;
    if (entry.chunk_count == 0) {
      if (first != 0) Fail("first chunk", "0 for an entry of no bytes", fmt::format("{}", first));
      return;
    }
    const std::pair range(first, entry.chunk_count);
    if (first < next_chunk_ && std::binary_search(ranges_.begin(), ranges_.end(), range)) return;
    if (first != next_chunk_) {
      return Fail("first chunk", fmt::format("{}, or the chunks of an earlier entry", next_chunk_),
                  fmt::format("{}", first));
    }
    if (entry.chunk_count > chunks_.size() - first) {
      return Fail("chunk count", fmt::format("at most the {} chunks that are left", chunks_.size() - first),
                  fmt::format("{}", entry.chunk_count));
    }
    ranges_.push_back(range);
    next_chunk_ += entry.chunk_count;
  }

  void CheckSizes(const ShardEntry& entry, uint64_t bytes) {
    for (uint64_t i = 0; i < entry.chunk_count; ++i, bytes -= std::min<uint64_t>(bytes, chunk_bytes_)) {
      const uint64_t expected = std::min<uint64_t>(bytes, chunk_bytes_);
      const uint64_t found = chunks_[entry.first_chunk + i].raw_bytes;
      if (found != expected) {
        return Fail(fmt::format("chunk {}", entry.first_chunk + i), fmt::format("{} raw bytes", expected),
                    fmt::format("{}", found));
      }
    }
  }

  void Fail(std::string_view field, std::string_view expected, std::string_view found) {
    in_->FailAt(start_, fmt::format("{} of entry {}", field, number_), expected, found);
  }

  const std::vector<ChunkRecord>& chunks_;
  const uint64_t chunk_bytes_;
  ByteReader* const in_;
  size_t start_ = 0;     // of the entry at hand
  uint64_t number_ = 0;  // of the entry at hand
  uint64_t next_chunk_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // first chunk and count of all so far, ascending
  std::string_view name_;                              // of the entry at hand
  absl::flat_hash_set<std::string_view> names_;        // into the index, as the one above
};

std::string GetKey(uint64_t bytes, std::string_view what, std::string_view before, bool first, ByteReader* in) {
  const size_t start = in->offset();
  std::string key(in->GetText(bytes, what));
  if (key.empty() || key.size() > EntrySpec::kNameBytesMax) {
    in->FailAt(start, what, fmt::format("1 to {} bytes", EntrySpec::kNameBytesMax), fmt::format("{} bytes", bytes));
  } else if (!first && key <= before) {
    in->FailAt(start, what, fmt::format("one after '{}' in byte order", PrintableText(before)),
               fmt::format("'{}'", PrintableText(key)));
  }
  return key;
}

void GetMetrics(uint32_t count, ByteReader* in, std::map<std::string, double>* metrics) {
  if (!in->CheckCount(count, kMetricBytesMin, "metric count")) return;
  std::string before;
  for (uint32_t i = 0; i < count && in->ok(); ++i) {
    const double value = in->GetDouble("metric value");
    const auto name_bytes = in->Get<uint16_t>("metric name bytes");
    before = GetKey(name_bytes, "metric name", before, i == 0, in);
    metrics->emplace_hint(metrics->end(), before, value);
  }
}

void GetProperties(uint32_t count, ByteReader* in, std::map<std::string, std::string>* properties) {
  if (!in->CheckCount(count, kPropertyBytesMin, "property count")) return;
  std::string before;
  for (uint32_t i = 0; i < count && in->ok(); ++i) {
    const auto key_bytes = in->Get<uint16_t>("property key bytes");
    const auto value_bytes = in->Get<uint32_t>("property value bytes");
    if (value_bytes > kPropertyBytesMax) {
      in->Fail("property value bytes", 4, fmt::format("at most {}", kPropertyBytesMax), fmt::format("{}", value_bytes));
    }
    before = GetKey(key_bytes, "property key", before, i == 0, in);
    properties->emplace_hint(properties->end(), before, in->GetText(value_bytes, "property value"));
  }
}

}  // namespace

absl::StatusOr<ShardIndex> DecodeShardIndex(std::span<const std::byte> bytes, const ShardHeader& header,
                                            const ShardFooter& footer) {
  if (bytes.size() != footer.index_bytes) {
    return absl::DataLossError(
        fmt::format("shard index: size: expected {} bytes, found {} bytes", footer.index_bytes, bytes.size()));
  }
  if (const Digest128 digest = DigestOf(bytes); digest != footer.index_digest) {
    return absl::DataLossError(fmt::format("shard index: digest: expected {}, found {} (computed)",
                                           ToHex(footer.index_digest.bytes), ToHex(digest.bytes)));
  }
  ByteReader in(bytes, "shard index");
  ShardIndex index;
  const Preamble counts = GetPreamble(&in, &index);
  GetFiles(counts.file_count, header.identity, &in, &index.files);
  GetChunks(counts.chunk_count, index.files.size(), footer.index_offset, &in, &index.chunks);
  EntryTable(index.chunks, header.chunk_bytes, &in).Get(counts.entry_count, &index.entries);
  GetMetrics(counts.metric_count, &in, &index.metrics);
  GetProperties(counts.property_count, &in, &index.properties);
  index.user_metadata = in.GetText(counts.user_metadata_bytes, "user metadata");
  in.ExpectEnd();
  if (!in.ok()) return in.status();
  return index;
}

}  // namespace tidemark::storage
