// A shard's index, with a digest that is always right. The first bytes of the input are what header and footer would
// say: the size of chunks, where the index begins, and whether the shard names itself in its list of files.

#include <string>

#include "fuzz/fuzzing.h"
#include "storage/shard/shard_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  using fuzz::Require;
  fuzz::FuzzInput in(data, size);
  storage::ShardHeader header;
  header.chunk_bytes = storage::kChunkBytesMin * (1 + in.Take<uint8_t>());
  storage::ShardFooter footer;
  footer.index_offset = storage::kShardBlockBytes * (uint64_t{1} + in.Take<uint16_t>());
  const std::string_view bytes = in.TakeRest();
  footer.index_bytes = bytes.size();
  footer.index_digest = storage::DigestOf(fuzz::AsBytes(bytes));
  const auto index = DecodeShardIndex(fuzz::AsBytes(bytes), header, footer);
  if (!index.ok()) {
    Require(absl::IsDataLoss(index.status()) && !index.status().message().empty(),
            "an index is refused for another reason than damage");
    return 0;
  }
  // An index says everything in one way only.
  Require(EncodeShardIndex(*index) == bytes, "an index is not what it encodes to");
  Require(EncodedShardIndexBytes(*index) == bytes.size(), "the size of an index is not what was said");
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
