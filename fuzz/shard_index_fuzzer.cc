// A shard's index, with a digest that is always right. The first bytes of the input are what header and footer would
// say: the size of chunks, whether names are repeated (SetShape), where the index begins, and whether the shard names
// itself in its list of files. A delta is followed by the whole index of its base.

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "fuzz/store_image.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/format/shard_index_layout.h"

namespace tidemark::fuzz {
namespace {

storage::ShardFooter FooterOf(std::string_view index, uint64_t index_offset) {
  return {.index_offset = index_offset,
          .index_bytes = index.size(),
          .index_digest = storage::DigestOf(AsBytes(index)),
          .index_is_delta = index.starts_with(storage::kDeltaMagic)};
}

// What is decoded of an index that is stored as a delta, and obeys the rules of one that is stored whole.
absl::StatusOr<storage::ShardIndex> DecodeDelta(std::string_view bytes, const storage::ShardHeader& header,
                                                uint64_t index_offset) {
  const size_t size = std::min(bytes.find(storage::kIndexMagic), bytes.size());
  const std::string_view delta = bytes.substr(0, size);
  const std::string_view base = bytes.substr(size);
  const auto read_base = [&](const storage::FileReference& shard, const storage::Digest128&) {
    storage::ShardHeader base_header = header;
    base_header.identity.step = shard.step;
    base_header.identity.attempt = shard.attempt;
    return DecodeShardIndex(AsBytes(base), base_header, FooterOf(base, index_offset));
  };
  storage::IndexBase found;
  auto index = DecodeShardIndexDelta(AsBytes(delta), header, FooterOf(delta, index_offset), read_base, &found);
  if (!index.ok()) return index;
  Require(EncodeShardIndex(*index, found) == delta, "a delta is not what it encodes to");
  Require(EncodedShardIndexBytes(*index, found) == delta.size(), "the size of a delta is not what was said");
  const std::string whole = EncodeShardIndex(*index);
  Require(DecodeShardIndex(AsBytes(whole), header, FooterOf(whole, index_offset)).ok(),
          "a delta and its base make an index that is refused");
  return index;
}

bool Overlap(const EntrySpec& a, const EntrySpec& b) {
  for (size_t d = 0; d < a.shape.size(); ++d) {
    const int64_t begin = std::max(a.box_offset[d], b.box_offset[d]);
    if (begin >= std::min(a.box_offset[d] + a.box_extent[d], b.box_offset[d] + b.box_extent[d])) return false;
  }
  return true;
}

// Holds the entries against each other, the first ones each against each.
void CheckNames(const storage::ShardIndex& index, bool repeats_names) {
  constexpr size_t kComparedMax = 200;
  bool repeats = false;
  std::map<std::string_view, size_t> first;
  for (size_t i = 0; i < index.entries.size(); ++i) {
    const EntrySpec& spec = index.entries[i].spec;
    const auto [place, is_new] = first.emplace(spec.name, i);
    if (is_new) continue;
    repeats = true;
    const EntrySpec& other = index.entries[place->second].spec;
    Require(spec.kind == EntryKind::kTensor && other.kind == EntryKind::kTensor && !spec.whole() && !other.whole(),
            "a name is that of several entries which are no boxes of a tensor");
    Require(spec.dtype == other.dtype && spec.shape == other.shape, "boxes of different tensors have one name");
    for (size_t k = 0; k < std::min(i, kComparedMax); ++k) {
      const EntrySpec& earlier = index.entries[k].spec;
      if (earlier.name == spec.name) Require(!Overlap(earlier, spec), "boxes of one tensor overlap");
    }
  }
  Require(repeats == repeats_names, "names are repeated, and the header says otherwise");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  using fuzz::Require;
  const tidemark::fuzz::AllocationBudget budget(size);
  fuzz::FuzzInput in(data, size);
  storage::ShardHeader header;
  fuzz::SetShape(in.Take<uint8_t>(), &header);
  const uint64_t index_offset = storage::kShardBlockBytes * (uint64_t{1} + in.Take<uint16_t>());
  const std::string_view bytes = in.TakeRest();
  const storage::ShardFooter footer = fuzz::FooterOf(bytes, index_offset);
  const auto index = footer.index_is_delta ? fuzz::DecodeDelta(bytes, header, index_offset)
                                           : DecodeShardIndex(fuzz::AsBytes(bytes), header, footer);
  if (!index.ok()) {
    Require(absl::IsDataLoss(index.status()) && !index.status().message().empty(),
            "an index is refused for another reason than damage");
    return 0;
  }
  fuzz::CheckNames(*index, header.repeats_names);
  // An index says everything in one way only.
  if (!footer.index_is_delta) {
    Require(EncodeShardIndex(*index) == bytes, "an index is not what it encodes to");
    Require(EncodedShardIndexBytes(*index) == bytes.size(), "the size of an index is not what was said");
  }
  for (const storage::ChunkRecord& chunk : index->chunks) {
    Require(chunk.raw_bytes <= storage::kChunkBytesMax && chunk.stored_bytes <= chunk.raw_bytes,
            "a chunk is larger than a chunk may be");
    if (chunk.file != 0) continue;
    Require(chunk.offset >= storage::kShardBlockBytes && chunk.offset <= footer.index_offset &&
                chunk.stored_bytes <= footer.index_offset - chunk.offset,
            "a chunk leaves its file");
  }
  return 0;
}
