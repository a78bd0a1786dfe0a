// A shard's header and footer. The first byte of the input says which, and whether the rest is a whole block; else the
// rest lies over a block of zeros whose magic, version and checksum are made right, so that the fields behind them are
// what is tried.

#include <string>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark::fuzz {
namespace {

using storage::kShardBlockBytes;

constexpr uint8_t kFooter = 1;
constexpr uint8_t kAsItIs = 2;
constexpr uint8_t kRepeatsNames = 4;  // of a header: it has version 2

constexpr size_t kFieldsOffset = 16;  // behind magic, version and byte order
constexpr size_t kChecksumOffset = kShardBlockBytes - sizeof(uint64_t);

std::string MakeBlock(uint8_t flags, std::string_view fields) {
  if (flags & kAsItIs) return std::string(fields);
  const storage::ShardHeader header{.repeats_names = (flags & kRepeatsNames) != 0};
  std::string block = flags & kFooter ? storage::EncodeShardFooter({}) : storage::EncodeShardHeader(header);
  fields = fields.substr(0, kChecksumOffset - kFieldsOffset);
  block.replace(kFieldsOffset, fields.size(), fields);
  const uint64_t checksum = storage::ChecksumOf(AsBytes(block).first(kChecksumOffset));
  std::memcpy(block.data() + kChecksumOffset, &checksum, sizeof(checksum));
  return block;
}

void TryHeader(const std::string& block) {
  const auto header = storage::DecodeShardHeader(AsBytes(block));
  if (!header.ok()) return Require(!header.status().message().empty(), "a header is refused without a word");
  Require(header->identity.step >= 0 && header->identity.rank < header->identity.world_size &&
              storage::IsValidChunkBytes(header->chunk_bytes),
          "a header breaks its own rules");
  Require(EncodeShardHeader(*header) == block, "a header is not what it encodes to");
}

void TryFooter(const std::string& block, uint64_t file_bytes) {
  const auto footer = storage::DecodeShardFooter(AsBytes(block), file_bytes);
  if (!footer.ok()) return Require(!footer.status().message().empty(), "a footer is refused without a word");
  Require(footer->file_bytes == file_bytes && footer->index_offset >= kShardBlockBytes &&
              footer->index_offset < file_bytes && footer->index_bytes < file_bytes - footer->index_offset,
          "a footer's index leaves the file");
  Require(EncodeShardFooter(*footer) == block, "a footer is not what it encodes to");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark::fuzz;
  const tidemark::fuzz::AllocationBudget budget(size);
  FuzzInput in(data, size);
  const auto flags = in.Take<uint8_t>();
  if ((flags & kFooter) == 0) {
    TryHeader(MakeBlock(flags, in.TakeRest()));
    return 0;
  }
  const auto file_bytes = in.Take<uint64_t>();
  TryFooter(MakeBlock(flags, in.TakeRest()), file_bytes);
  return 0;
}
