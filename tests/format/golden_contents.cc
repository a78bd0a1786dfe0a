#include "tests/format/golden_contents.h"

#include <bit>
#include <cstring>
#include <limits>

namespace tidemark::storage {
namespace {

// SplitMix64's increment and a multiplication: enough to look random to a compressor.
class Generator {
 public:
  uint32_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    return static_cast<uint32_t>((state_ ^ (state_ >> 31)) * 0xbf58476d1ce4e5b9 >> 32);
  }
  // Bell-shaped, about 0.02 wide, made of sums and products that are exact in a float.
  float NextWeight() {
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int32_t>(Next() % 65536) - 32768;
    return static_cast<float>(sum) * 0x1p-21f;
  }

 private:
  uint64_t state_ = 1;
};

template <typename T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// As the golden file of version 1 has them, but for the epoch and the text.
TestContents MakeContents(int64_t epoch, const std::vector<char>& text) {
  Generator generator;
  TestContents contents;
  std::vector<float> weight;
  for (int i = 0; i < 2000; ++i) weight.push_back(generator.NextWeight());
  const size_t embedding = contents.Add(Tensor("model.embed.weight", Dtype::kFloat32, {100, 20}), BytesOf(weight));
  contents.Tie(Tensor("model.head.weight", Dtype::kFloat32, {100, 20}), embedding);
  std::vector<uint16_t> halves;
  for (int i = 0; i < 4096; ++i) halves.push_back(std::bit_cast<uint32_t>(generator.NextWeight()) >> 16);
  contents.Add(Tensor("model.bf16", Dtype::kBfloat16, {64, 64}), BytesOf(halves));
  std::vector<double> doubles;
  for (int i = 0; i < 600; ++i) doubles.push_back(generator.NextWeight());
  EntrySpec box = Tensor("model.box", Dtype::kFloat64, {100, 20});
  box.box_offset = {25, 0};
  box.box_extent = {50, 12};
  contents.Add(box, BytesOf(doubles));
  contents.Add(Tensor("model.special", Dtype::kFloat32, {5}),
               BytesOf<uint32_t>({0x7fc00001, 0xffc00000, 0x7f800000, 0x80000000, 0x00000001}));
  std::vector<uint8_t> noise;  // one chunk that begins at a block, and one that does not
  for (int i = 0; i < 65536 + 100; ++i) noise.push_back(generator.Next());
  contents.Add(Tensor("noise", Dtype::kUint8, {65536 + 100}), BytesOf(noise));
  std::vector<int64_t> ordinals;
  for (int64_t i = 0; i < 500; ++i) ordinals.push_back(i * i - 1000);
  contents.Add(Tensor("ordinals", Dtype::kInt64, {500}), BytesOf(ordinals));
  contents.Add(Tensor("empty", Dtype::kFloat16, {0, 8}), {});
  contents.Add(Tensor("zero-dimensional", Dtype::kComplex64, {}), BytesOf<float>({1.5f, -2.0f}));
  contents.Add({.name = "epoch", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, BytesOf<int64_t>({epoch}));
  contents.Add({.name = "rate", .kind = EntryKind::kDouble, .dtype = Dtype::kFloat64}, BytesOf<double>({0.125}));
  contents.Add({.name = "warm", .kind = EntryKind::kBool, .dtype = Dtype::kBool}, BytesOf<uint8_t>({1}));
  const auto text_bytes = static_cast<int64_t>(text.size());
  contents.Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {text_bytes}},
               BytesOf(text));
  contents.Add({.name = "größe", .kind = EntryKind::kBytes, .dtype = Dtype::kUint8, .shape = {2}},
               BytesOf<uint8_t>({0, 255}));
  contents->created_unix_ns = 1'700'000'000'000'000'001;
  contents->blocked_ns = [] { return 250'000'000; };
  contents->metrics = {{"accuracy", 0.875}, {"loss", std::numeric_limits<double>::infinity()}};
  contents->user_metadata = R"({"dataset": "golden", "lines": [1, 2]})";
  contents->properties = {{"writer", "make_golden"}};
  return contents;
}

}  // namespace

ShardIdentity GoldenIdentity() {
  ShardIdentity identity;
  for (uint8_t i = 0; i < 16; ++i) {
    identity.store.bytes[i] = 0x10 + i;
    identity.attempt.bytes[i] = 0xf0 + i;
  }
  identity.step = 1000;
  identity.sequence = 17;
  identity.rank = 1;
  identity.world_size = 4;
  return identity;
}

TestContents GoldenContents() { return MakeContents(-3, std::vector<char>(400, 'T')); }

ShardIdentity GoldenDeltaIdentity() {
  ShardIdentity identity = GoldenIdentity();
  for (uint8_t i = 0; i < 16; ++i) identity.attempt.bytes[i] = 0xe0 + i;
  ++identity.step;
  ++identity.sequence;
  return identity;
}

TestContents GoldenDeltaContents() { return MakeContents(-4, std::vector<char>(30, 't')); }

ShardIdentity GoldenBoxesIdentity() {
  ShardIdentity identity = GoldenIdentity();
  for (uint8_t i = 0; i < 16; ++i) identity.attempt.bytes[i] = 0xd0 + i;
  identity.step += 2;
  identity.sequence += 2;
  return identity;
}

TestContents GoldenBoxesContents() {
  TestContents contents;
  const auto add = [&](EntrySpec tensor, std::vector<int64_t> offset, std::vector<int64_t> extent, int32_t first) {
    std::vector<int32_t> numbers;
    for (int32_t i = 0; i < extent[0] * extent[1]; ++i) numbers.push_back(first + i);
    tensor.box_offset = std::move(offset);
    tensor.box_extent = std::move(extent);
    contents.Add(std::move(tensor), BytesOf(numbers));
  };
  const EntrySpec fused = Tensor("attention.qkv", Dtype::kInt32, {600, 40});
  add(fused, {400, 20}, {100, 20}, 1'000'000);
  add(Tensor("attention.out", Dtype::kInt32, {40, 600}), {0, 100}, {40, 100}, -5);
  add(fused, {0, 20}, {100, 20}, 2'000'000);
  add(fused, {200, 20}, {0, 20}, 0);
  contents.Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {3}},
               BytesOf(std::vector<char>(3, 'T')));
  contents->created_unix_ns = 1'700'000'002'000'000'001;
  contents->metrics = {{"loss", 0.25}};
  contents->properties = {{"writer", "make_golden"}};
  return contents;
}

std::string MakeGoldenDelta(const ShardReader& base) {
  const TestContents contents = GoldenDeltaContents();
  ShardIndex index = base.index();
  IndexBase delta = {.file = 1, .digest = base.footer().index_digest};
  delta.changed_chunks.resize(index.chunks.size());
  delta.changed_entries.resize(index.entries.size());
  index.files = {ReferenceTo(GoldenIdentity())};
  for (ChunkRecord& chunk : index.chunks) chunk.file = delta.file;
  std::string data;
  for (size_t i = 0; i < index.entries.size(); ++i) {
    ShardEntry& entry = index.entries[i];
    if (entry.spec.name != "epoch" && entry.spec.name != "text") continue;
    delta.changed_entries[i] = entry.spec != contents.get().entries[i].spec;
    entry.spec = contents.get().entries[i].spec;
    const std::span<const std::byte> bytes = contents.bytes(i);
    const auto size = static_cast<uint32_t>(bytes.size());
    index.chunks[entry.first_chunk] = {.raw_bytes = size,
                                       .stored_bytes = size,
                                       .offset = kShardBlockBytes + data.size(),
                                       .digest = DigestOf(bytes),
                                       .checksum = ChecksumOf(bytes)};
    delta.changed_chunks[entry.first_chunk] = true;
    data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  index.created_unix_ns += 1'000'000'000;
  index.metrics["loss"] = 2.5;
  index.user_metadata = R"({"dataset": "golden", "lines": [3]})";
  return BuildShard({.identity = GoldenDeltaIdentity(), .chunk_bytes = base.header().chunk_bytes}, data, index, delta);
}

}  // namespace tidemark::storage
