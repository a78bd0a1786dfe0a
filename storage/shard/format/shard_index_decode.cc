// Decodes an index, whole or as a delta, and checks an encoded one before it is written. Longer than 500 lines because
// all three share the decoders of records, which no other file needs.

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/io/printable_text.h"
#include "storage/shard/format/entry_names.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/format/shard_index_layout.h"

namespace tidemark::storage {
namespace {

// An entry takes many times the bytes here that it may have in the index: no more memory is taken ahead than for these,
// whatever count an index of zeros claims.
constexpr uint64_t kEntriesReservedMax = 1 << 16;
// A name takes 8 bytes ahead, a third of what the smallest entry has in the index.
constexpr uint64_t kNamesReservedMax = 1 << 20;

struct Preamble {
  uint64_t chunk_count = 0;
  uint64_t entry_count = 0;
  uint32_t file_count = 0;
  uint32_t metric_count = 0;
  uint32_t property_count = 0;
  uint32_t user_metadata_bytes = 0;
};

Preamble GetPreamble(std::string_view magic, ByteReader* in, ShardIndex* index) {
  Preamble counts;
  if (in->GetText(magic.size(), "magic") != magic && in->ok()) {
    in->FailAt(0, "magic", fmt::format("'{}'", magic), "something else");
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

// Where the record of a chunk is, for messages.
using OffsetOfChunk = absl::FunctionRef<size_t(uint64_t number)>;

// The chunks of this file, which may be in any order, must not share a byte.
void CheckOverlap(const std::vector<ChunkRecord>& chunks, OffsetOfChunk offset_of, ByteReader* in) {
  std::vector<uint64_t> order;
  order.reserve(std::count_if(chunks.begin(), chunks.end(), [](const ChunkRecord& chunk) { return chunk.file == 0; }));
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
      in->FailAt(offset_of(order[i]), fmt::format("offset of chunk {}", order[i]),
                 fmt::format("{} or more, where chunk {} ends", before.offset + before.stored_bytes, order[i - 1]),
                 fmt::format("{}", chunk.offset));
      return;
    }
  }
}

ChunkRecord GetChunk(uint64_t number, size_t file_count, uint64_t index_offset, ByteReader* in) {
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
  if (in->ok()) CheckChunk(chunk, number, start, file_count, index_offset, in);
  return chunk;
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
  EntryTable(const std::vector<ChunkRecord>& chunks, const ShardHeader& header, ByteReader* in)
      : chunks_(chunks), chunk_bytes_(header.chunk_bytes), repeats_names_(header.repeats_names), in_(in) {}

  // Decodes so many entries, checks each and hands it to `take`. `entries` has them afterwards.
  void Get(uint64_t count, const std::vector<ShardEntry>& entries,
           absl::FunctionRef<void(uint64_t number, ShardEntry entry)> take) {
    if (!in_->CheckCount(count, kEntryBytesMin, "entry count")) return;
    const size_t table_start = in_->offset();
    names_.Reserve(std::min(count, kNamesReservedMax));
    ranges_.reserve(std::min(count, kNamesReservedMax));
    for (uint64_t i = 0; i < count && in_->ok(); ++i) {
      start_ = in_->offset();
      number_ = i;
      ShardEntry entry = GetEntry();
      if (in_->ok()) Check(entry, name_);
      if (in_->ok()) take(i, std::move(entry));
    }
    CheckEnd();
    if (in_->ok() && repeats_names_) {
      CheckNames(entries, [&](size_t number) {
        size_t start = table_start;
        for (size_t i = 0; i < number; ++i) start += EncodedEntryBytes(entries[i]);
        return start;
      });
    }
  }

  // The entry of that number, which is not held against the table.
  ShardEntry GetOne(uint64_t number) {
    start_ = in_->offset();
    number_ = number;
    return GetEntry();
  }

  // Checks entries that are decoded. They must outlive this.
  void Check(const std::vector<ShardEntry>& entries) {
    start_ = in_->offset();
    names_.Reserve(entries.size());
    for (number_ = 0; number_ < entries.size() && in_->ok(); ++number_) {
      Check(entries[number_], entries[number_].spec.name);
    }
    CheckEnd();
    if (in_->ok() && repeats_names_) CheckNames(entries, [&](size_t) { return start_; });
  }

  void Fail(std::string_view field, std::string_view expected, std::string_view found) {
    in_->FailAt(start_, fmt::format("{} of entry {}", field, number_), expected, found);
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

  void CheckEnd() {
    if (in_->ok() && next_chunk_ != chunks_.size()) {
      in_->FailAt(in_->offset(), "chunks of all entries", fmt::format("all {} chunks of the table", chunks_.size()),
                  fmt::format("{}", next_chunk_));
    }
  }

  // Of all entries, in a shard in which some have one name. `start_of`: where an entry is, for messages.
  void CheckNames(const std::vector<ShardEntry>& entries, absl::FunctionRef<size_t(size_t number)> start_of) {
    if (!names_.repeats()) {
      in_->FailAt(in_->offset(), "names of all entries", "one that several have, as version 2 of the header says",
                  "none");
      return;
    }
    const auto spec_of = [&](size_t number) -> const EntrySpec& { return entries[number].spec; };
    const std::optional<NameConflict> conflict = names_.FindConflict(spec_of);
    if (!conflict) return;
    start_ = start_of(conflict->entry);
    number_ = conflict->entry;
    Fail("name", "one that no other entry has, or another box of its tensor",
         fmt::format("'{}' again: {}", PrintableText(spec_of(number_).name), conflict->why));
  }

  void Check(const ShardEntry& entry, std::string_view name) {
    uint64_t bytes = 0;
    if (auto status = ValidateEntry(entry.spec, &bytes); !status.ok()) {
      return Fail("description", "a valid one", std::string_view(status.message().data(), status.message().size()));
    }
    if (!names_.Add(name) && !repeats_names_) {
      return Fail("name", "one that no other entry has", fmt::format("'{}' again", PrintableText(entry.spec.name)));
    }
    const uint64_t count = bytes / chunk_bytes_ + (bytes % chunk_bytes_ != 0);
    if (entry.chunk_count != count) {
      return Fail("chunk count", fmt::format("{}, for {} bytes in chunks of {}", count, bytes, chunk_bytes_),
                  fmt::format("{}", entry.chunk_count));
    }
    CheckRange(entry, bytes);
  }

  void CheckRange(const ShardEntry& entry, uint64_t bytes) {
    const uint64_t first = entry.first_chunk;
    if (entry.chunk_count == 0) {
      if (first != 0) Fail("first chunk", "0 for an entry of no bytes", fmt::format("{}", first));
      return;
    }
    const std::pair range(first, entry.chunk_count);
    if (first < next_chunk_ && std::binary_search(ranges_.begin(), ranges_.end(), range)) {
      // The earlier entry has as many chunks, so all but the last were compared with the same size. Checking them again
      // for each tie would take time that grows with the product of ties and chunks.
      return CheckSizes(entry, entry.chunk_count - 1, bytes);
    }
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
    CheckSizes(entry, 0, bytes);
  }

  // Checks the entry's chunks from `begin` on. Precondition: the entry has as many chunks as its bytes fill.
  void CheckSizes(const ShardEntry& entry, uint64_t begin, uint64_t bytes) {
    for (uint64_t i = begin; i < entry.chunk_count; ++i) {
      const uint64_t expected = std::min(bytes - i * chunk_bytes_, chunk_bytes_);
      const uint64_t found = chunks_[entry.first_chunk + i].raw_bytes;
      if (found != expected) {
        return Fail(fmt::format("chunk {}", entry.first_chunk + i), fmt::format("{} raw bytes", expected),
                    fmt::format("{}", found));
      }
    }
  }

  const std::vector<ChunkRecord>& chunks_;
  const uint64_t chunk_bytes_;
  const bool repeats_names_;
  ByteReader* const in_;
  size_t start_ = 0;     // of the entry at hand
  uint64_t number_ = 0;  // of the entry at hand
  uint64_t next_chunk_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // first chunk and count of all so far, ascending
  std::string_view name_;                              // of the entry at hand
  EntryNames names_;                                   // into the index
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

// Metrics, properties and user metadata, which end the index.
void GetTexts(const Preamble& counts, ByteReader* in, ShardIndex* index) {
  GetMetrics(counts.metric_count, in, &index->metrics);
  GetProperties(counts.property_count, in, &index->properties);
  index->user_metadata = in->GetText(counts.user_metadata_bytes, "user metadata");
  in->ExpectEnd();
}

absl::Status CheckStored(std::span<const std::byte> bytes, const ShardFooter& footer) {
  if (bytes.size() != footer.index_bytes) {
    return absl::DataLossError(
        fmt::format("shard index: size: expected {} bytes, found {} bytes", footer.index_bytes, bytes.size()));
  }
  if (const Digest128 digest = DigestOf(bytes); digest != footer.index_digest) {
    return absl::DataLossError(fmt::format("shard index: digest: expected {}, found {} (computed)",
                                           ToHex(footer.index_digest.bytes), ToHex(digest.bytes)));
  }
  return absl::OkStatus();
}

// Chunks and entries in the order of their numbers: all of an index that is stored whole; of a delta, those that differ
// from the base.
struct Records {
  absl::FunctionRef<void(uint64_t number, const ChunkRecord& chunk)> take_chunk;
  absl::FunctionRef<void(uint64_t number, ShardEntry entry)> take_entry;
};

// The numbers of a delta's chunks or entries.
class DeltaNumbers {
 public:
  DeltaNumbers(uint64_t count, std::string_view what, ByteReader* in) : count_(count), what_(what), in_(in) {}

  uint64_t Get() {
    const auto number = in_->Get<uint64_t>(what_);
    if (number < next_ || number >= count_) {
      in_->Fail(what_, sizeof(number), fmt::format("{} to {}", next_, static_cast<int64_t>(count_) - 1),
                fmt::format("{}", number));
    }
    next_ = number + 1;
    return number;
  }

 private:
  const uint64_t count_;
  const std::string_view what_;
  ByteReader* const in_;
  uint64_t next_ = 0;
};

// What is between the preamble and the files of a delta.
struct DeltaCounts {
  Digest128 base_digest;
  uint32_t base_file = 0;
  uint32_t entry_count = 0;
  uint64_t chunk_count = 0;
};

DeltaCounts GetDeltaCounts(const Preamble& all, ByteReader* in) {
  DeltaCounts counts;
  counts.base_digest.bytes = in->GetBytes16("base digest");
  counts.base_file = in->Get<uint32_t>("base file");
  if (counts.base_file == 0 || counts.base_file > all.file_count) {
    in->Fail("base file", sizeof(counts.base_file), fmt::format("1 to {}", all.file_count),
             fmt::format("{}", counts.base_file));
  }
  counts.entry_count = in->Get<uint32_t>("changed entry count");
  counts.chunk_count = in->Get<uint64_t>("changed chunk count");
  return counts;
}

// The chunks and entries that a delta has.
void GetDelta(const Preamble& all, const DeltaCounts& counts, const ShardHeader& header, const ShardFooter& footer,
              ByteReader* in, const Records& records) {
  if (!in->CheckCount(counts.chunk_count, kDeltaNumberBytes + kChunkRecordBytes, "changed chunk count")) return;
  DeltaNumbers chunk_numbers(all.chunk_count, "chunk number", in);
  for (uint64_t i = 0; i < counts.chunk_count && in->ok(); ++i) {
    const uint64_t number = chunk_numbers.Get();
    const ChunkRecord chunk = GetChunk(number, all.file_count, footer.index_offset, in);
    if (in->ok()) records.take_chunk(number, chunk);
  }
  if (!in->CheckCount(counts.entry_count, kDeltaNumberBytes + kEntryBytesMin, "changed entry count")) return;
  const std::vector<ChunkRecord> no_chunks;
  EntryTable table(no_chunks, header, in);
  DeltaNumbers entry_numbers(all.entry_count, "entry number", in);
  for (uint64_t i = 0; i < counts.entry_count && in->ok(); ++i) {
    const uint64_t number = entry_numbers.Get();
    ShardEntry entry = table.GetOne(number);
    if (in->ok()) records.take_entry(number, std::move(entry));
  }
}

// By the number of a file in the base (0: the base itself), its number in `files`. 0: `files` does not have it.
std::vector<uint16_t> FilesOfBase(const ShardIndex& base, uint32_t base_file, const std::vector<FileReference>& files) {
  const auto key = [](const FileReference& file) {
    return std::tuple(file.attempt, file.step, file.rank, file.world_size);
  };
  std::map<decltype(key(FileReference())), uint16_t> numbers;
  for (size_t i = 0; i < files.size(); ++i) numbers.try_emplace(key(files[i]), i + 1);
  std::vector<uint16_t> found = {static_cast<uint16_t>(base_file)};
  for (const FileReference& file : base.files) {
    const auto place = numbers.find(key(file));
    found.push_back(place == numbers.end() ? 0 : place->second);
  }
  return found;
}

bool SameNumbers(const std::map<std::string, double>& a, const std::map<std::string, double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && std::bit_cast<uint64_t>(one.second) == std::bit_cast<uint64_t>(other.second);
  });
}

// All but chunks and entries.
bool IsSameAround(const ShardIndex& a, const ShardIndex& b) {
  return a.created_unix_ns == b.created_unix_ns && a.blocked_ns == b.blocked_ns && a.files == b.files &&
         SameNumbers(a.metrics, b.metrics) && a.properties == b.properties && a.user_metadata == b.user_metadata;
}

}  // namespace

absl::StatusOr<ShardIndex> DecodeShardIndex(std::span<const std::byte> bytes, const ShardHeader& header,
                                            const ShardFooter& footer) {
  if (footer.index_is_delta) return absl::DataLossError("shard index: expected one that is whole, found a delta");
  if (auto status = CheckStored(bytes, footer); !status.ok()) return status;
  ByteReader in(bytes, "shard index");
  ShardIndex index;
  const Preamble counts = GetPreamble(kIndexMagic, &in, &index);
  GetFiles(counts.file_count, header.identity, &in, &index.files);
  if (in.CheckCount(counts.chunk_count, kChunkRecordBytes, "chunk count")) {
    const size_t table_start = in.offset();
    index.chunks.reserve(counts.chunk_count);
    for (uint64_t i = 0; i < counts.chunk_count && in.ok(); ++i) {
      index.chunks.push_back(GetChunk(i, index.files.size(), footer.index_offset, &in));
    }
    const auto offset_of = [&](uint64_t number) { return table_start + number * kChunkRecordBytes; };
    if (in.ok()) CheckOverlap(index.chunks, offset_of, &in);
  }
  index.entries.reserve(std::min({counts.entry_count, kEntriesReservedMax, in.remaining() / kEntryBytesMin}));
  EntryTable(index.chunks, header, &in).Get(counts.entry_count, index.entries, [&](uint64_t, ShardEntry entry) {
    index.entries.push_back(std::move(entry));
  });
  GetTexts(counts, &in, &index);
  if (!in.ok()) return in.status();
  return index;
}

absl::StatusOr<ShardIndex> DecodeShardIndexDelta(std::span<const std::byte> bytes, const ShardHeader& header,
                                                 const ShardFooter& footer, ReadBaseIndex read_base, IndexBase* base) {
  if (!footer.index_is_delta) return absl::DataLossError("shard index: expected a delta, found one that is whole");
  if (auto status = CheckStored(bytes, footer); !status.ok()) return status;
  ByteReader in(bytes, "shard index");
  ShardIndex index;
  const Preamble all = GetPreamble(kDeltaMagic, &in, &index);
  const DeltaCounts counts = GetDeltaCounts(all, &in);
  GetFiles(all.file_count, header.identity, &in, &index.files);
  if (!in.ok()) return in.status();

  absl::StatusOr<ShardIndex> whole = read_base(index.files[counts.base_file - 1], counts.base_digest);
  if (!whole.ok()) return whole.status();
  if (all.chunk_count != whole->chunks.size() || all.entry_count != whole->entries.size()) {
    in.FailAt(kIndexMagic.size(), "counts",
              fmt::format("the {} chunks and {} entries of its base", whole->chunks.size(), whole->entries.size()),
              fmt::format("{} and {}", all.chunk_count, all.entry_count));
    return in.status();
  }
  const std::vector<uint16_t> files = FilesOfBase(*whole, counts.base_file, index.files);
  index.chunks = std::move(whole->chunks);
  index.entries = std::move(whole->entries);
  *base = {.file = static_cast<uint16_t>(counts.base_file), .digest = counts.base_digest};
  base->changed_chunks.resize(all.chunk_count);
  base->changed_entries.resize(all.entry_count);
  const auto take_chunk = [&](uint64_t number, const ChunkRecord& chunk) {
    // Else the sizes of its entry are looked at once more below.
    if (counts.entry_count == 0 && chunk.raw_bytes != index.chunks[number].raw_bytes) {
      in.Fail(fmt::format("raw bytes of chunk {}", number), kChunkRecordBytes,
              fmt::format("{}, as in its base", index.chunks[number].raw_bytes), fmt::format("{}", chunk.raw_bytes));
    }
    index.chunks[number] = chunk;
    base->changed_chunks[number] = true;
  };
  const auto take_entry = [&](uint64_t number, ShardEntry entry) {
    const ShardEntry& before = index.entries[number];
    if (std::pair(entry.first_chunk, entry.chunk_count) != std::pair(before.first_chunk, before.chunk_count)) {
      in.FailAt(in.offset(), fmt::format("chunks of entry {}", number), "those of its base", "others");
    }
    index.entries[number] = std::move(entry);
    base->changed_entries[number] = true;
  };
  GetDelta(all, counts, header, footer, &in, {take_chunk, take_entry});
  for (uint64_t i = 0; i < all.chunk_count && in.ok(); ++i) {
    if (base->changed_chunks[i]) continue;
    const uint16_t file = files[index.chunks[i].file];
    if (file == 0) in.FailAt(in.offset(), fmt::format("file of chunk {}", i), "one of the list", "one of its base's");
    index.chunks[i].file = file;
  }
  const auto offset_of = [&](uint64_t) { return in.offset(); };
  if (in.ok()) CheckOverlap(index.chunks, offset_of, &in);
  if (counts.entry_count > 0 && in.ok()) EntryTable(index.chunks, header, &in).Check(index.entries);
  GetTexts(all, &in, &index);
  if (!in.ok()) return in.status();
  return index;
}

absl::Status CheckEncodedShardIndex(std::span<const std::byte> bytes, const ShardHeader& header,
                                    const ShardFooter& footer, const ShardIndex& index, const IndexBase& base) {
  const bool is_delta = base.file != 0;
  if (is_delta != footer.index_is_delta) return absl::InternalError("shard index: the footer says how it is stored");
  ByteReader in(bytes, "shard index");
  if (auto status = CheckStored(bytes, footer); !status.ok()) return absl::InternalError(status.message());
  ShardIndex around;
  const Preamble counts = GetPreamble(is_delta ? kDeltaMagic : kIndexMagic, &in, &around);
  const DeltaCounts delta = is_delta ? GetDeltaCounts(counts, &in) : DeltaCounts();
  GetFiles(counts.file_count, header.identity, &in, &around.files);
  const auto expect = [&](bool same, std::string_view what, uint64_t number) {
    if (!same) in.FailAt(in.offset(), fmt::format("{} {}", what, number), "what was encoded", "another");
  };
  expect(counts.chunk_count == index.chunks.size(), "chunks", counts.chunk_count);
  expect(counts.entry_count == index.entries.size(), "entries", counts.entry_count);
  const auto take_chunk = [&](uint64_t i, const ChunkRecord& chunk) { expect(chunk == index.chunks[i], "chunk", i); };
  const auto take_entry = [&](uint64_t i, const ShardEntry& entry) { expect(entry == index.entries[i], "entry", i); };
  if (is_delta) {
    expect(delta.base_digest == base.digest && delta.base_file == base.file, "base", base.file);
    GetDelta(counts, delta, header, footer, &in, {take_chunk, take_entry});
  } else {
    in.CheckCount(counts.chunk_count, kChunkRecordBytes, "chunk count");
    for (uint64_t i = 0; i < counts.chunk_count && in.ok(); ++i) {
      take_chunk(i, GetChunk(i, around.files.size(), footer.index_offset, &in));
    }
    if (in.ok()) EntryTable(index.chunks, header, &in).Get(counts.entry_count, index.entries, take_entry);
  }
  if (in.ok())
    CheckOverlap(
        index.chunks, [&](uint64_t) { return in.offset(); }, &in);
  GetTexts(counts, &in, &around);
  if (in.ok()) expect(IsSameAround(around, index), "all but the", 0);
  if (in.ok()) return absl::OkStatus();
  return absl::InternalError(fmt::format("the index of a shard is not written, for it could not be read: {}",
                                         std::string_view(in.status().message().data(), in.status().message().size())));
}

}  // namespace tidemark::storage
