#include "fuzz/seeds/seed_contents.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fuzz/fuzzing.h"
#include "storage/shard/format/chunk_codec.h"

namespace tidemark::fuzz {

std::string Floats(size_t count) {
  std::string bytes;
  uint32_t random = 1;
  for (size_t i = 0; i < count; ++i) {
    random = random * 1664525 + 1013904223;
    const float value = static_cast<float>(static_cast<int32_t>(random)) / 4e9F;
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

void SeedContents::Add(EntrySpec spec, std::string_view raw, uint8_t float_bytes, bool compress) {
  storage::ShardEntry entry{.spec = std::move(spec)};
  if (!raw.empty()) entry.first_chunk = index.chunks.size();
  for (; !raw.empty(); raw.remove_prefix(std::min<size_t>(raw.size(), kSeedChunkBytes)), ++entry.chunk_count) {
    const auto part = AsBytes(raw.substr(0, kSeedChunkBytes));
    storage::ChunkRecord record{.digest = storage::DigestOf(part)};
    std::vector<std::byte> buffer;
    const auto stored = storage::ChunkEncoder().Encode(part, float_bytes, compress, &buffer, &record);
    record.offset = storage::kShardBlockBytes + data.size();
    data.append(reinterpret_cast<const char*>(stored.data()), stored.size());
    index.chunks.push_back(record);
  }
  index.entries.push_back(std::move(entry));
}

SeedContents MixedContents() {
  SeedContents contents;
  contents.Add({.name = "weight", .dtype = Dtype::kFloat32, .shape = {1500, 1}}, Floats(1500), 4, true);
  contents.index.entries.push_back(contents.index.entries[0]);
  contents.index.entries.back().spec.name = "tied";
  contents.Add({.name = "zeros", .dtype = Dtype::kUint8, .shape = {3000}}, std::string(3000, '\0'), 0, true);
  contents.Add({.name = "part", .dtype = Dtype::kInt16, .shape = {4, 4}, .box_offset = {2, 0}, .box_extent = {2, 4}},
               "0123456789abcdef", 0, false);
  contents.Add({.name = "none", .dtype = Dtype::kFloat64, .shape = {0}}, "", 8, false);
  contents.Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {5}}, "hello", 0, false);
  contents.Add({.name = "epoch", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, "\1\2\3\4\5\6\7\10", 0, false);
  contents.index.created_unix_ns = 1'700'000'000'000'000'000;
  contents.index.blocked_ns = 1'000'000;
  contents.index.metrics = {{"loss", 0.5}, {"accuracy", 0.25}};
  contents.index.properties = {{"io", "threads"}, {"companions", "ema\n"}};
  contents.index.user_metadata = R"({"run": "a", "tags": [1, {"b": null}]})";
  return contents;
}

SeedContents BoxesContents() {
  SeedContents contents;
  const auto add = [&](std::vector<int64_t> offset, std::vector<int64_t> extent, std::string_view raw) {
    contents.Add({.name = "w",
                  .dtype = Dtype::kInt16,
                  .shape = {4, 4},
                  .box_offset = std::move(offset),
                  .box_extent = std::move(extent)},
                 raw, 0, false);
  };
  add({2, 0}, {2, 4}, "0123456789abcdef");
  contents.Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {5}}, "hello", 0, false);
  add({0, 1}, {2, 3}, "ABCDEFGHIJKL");
  add({0, 0}, {0, 1}, "");
  return contents;
}

}  // namespace tidemark::fuzz
