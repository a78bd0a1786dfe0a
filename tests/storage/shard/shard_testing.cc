#include "tests/storage/shard/shard_testing.h"

#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"

namespace tidemark::storage {

std::string ReadWhole(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  EXPECT_FALSE(error) << path;
  std::string bytes(error ? 0 : size, '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

void WriteWhole(const std::string& path, std::string_view contents) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(contents.data(), contents.size());
  out.close();
  EXPECT_TRUE(out.good()) << path;
}

size_t TestContents::Add(EntrySpec spec, std::vector<std::byte> data) {
  owned_.push_back(std::make_unique<std::vector<std::byte>>(std::move(data)));
  contents_.entries.push_back({std::move(spec), *owned_.back()});
  return contents_.entries.size() - 1;
}

size_t TestContents::Tie(EntrySpec spec, size_t earlier) {
  contents_.entries.push_back({std::move(spec), {}, static_cast<int64_t>(earlier)});
  return contents_.entries.size() - 1;
}

size_t TestContents::AddAligned(EntrySpec spec, const std::vector<std::byte>& data) {
  aligned_.emplace_back(data.size());
  std::memcpy(aligned_.back().data(), data.data(), data.size());
  contents_.entries.push_back({std::move(spec), aligned_.back().span().first(data.size())});
  return contents_.entries.size() - 1;
}

std::span<const std::byte> TestContents::bytes(size_t entry) const {
  const auto& found = contents_.entries[entry];
  return found.alias_of < 0 ? found.bytes : bytes(found.alias_of);
}

std::vector<std::byte> RandomBytes(size_t size, std::mt19937_64& random) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<std::byte> Weights(Dtype dtype, size_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, 0.02f);
  const size_t width = GetDtypeInfo(dtype).element_bytes;
  std::vector<std::byte> bytes(count * width);
  for (size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    if (dtype == Dtype::kFloat64) {
      const double wide = value;
      std::memcpy(bytes.data() + i * width, &wide, width);
    } else if (dtype == Dtype::kFloat32) {
      std::memcpy(bytes.data() + i * width, &value, width);
    } else if (dtype == Dtype::kBfloat16) {
      const auto high = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      std::memcpy(bytes.data() + i * width, &high, width);
    } else {
      std::abort();
    }
  }
  return bytes;
}

EntrySpec Tensor(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  return {.name = std::move(name), .kind = EntryKind::kTensor, .dtype = dtype, .shape = std::move(shape)};
}

TestContents MixedContents(uint32_t chunk_bytes, std::mt19937_64& random) {
  TestContents contents;
  const int64_t floats = 3 * chunk_bytes / 4 + 5;
  const size_t weight =
      contents.Add(Tensor("model.embed.weight", Dtype::kFloat32, {floats}), Weights(Dtype::kFloat32, floats, random));
  contents.Tie(Tensor("model.head.weight", Dtype::kFloat32, {floats}), weight);
  contents.Add(Tensor("model.empty", Dtype::kFloat32, {0, 7}), {});
  contents.AddAligned(Tensor("data.noise", Dtype::kUint8, {2 * chunk_bytes + 77}),
                      RandomBytes(2 * chunk_bytes + 77, random));
  contents.Add(Tensor("model.bf16", Dtype::kBfloat16, {chunk_bytes / 2}),
               Weights(Dtype::kBfloat16, chunk_bytes / 2, random));
  EntrySpec box = Tensor("model.box", Dtype::kFloat64, {100, 40});
  box.box_offset = {10, 0};
  box.box_extent = {90, 13};
  contents.Add(box, Weights(Dtype::kFloat64, 90 * 13, random));
  contents.Add(Tensor("optimizer.zeros", Dtype::kFloat32, {chunk_bytes}), std::vector<std::byte>(4 * chunk_bytes));
  contents.Add({.name = "epoch", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, RandomBytes(8, random));
  contents.Add({.name = "lr", .kind = EntryKind::kDouble, .dtype = Dtype::kFloat64}, RandomBytes(8, random));
  contents.Add({.name = "done", .kind = EntryKind::kBool, .dtype = Dtype::kBool}, {std::byte{1}});
  contents.Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {300}},
               std::vector<std::byte>(300, std::byte{'x'}));
  contents.Add({.name = "no text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {0}}, {});
  contents.Add({.name = "rng", .kind = EntryKind::kBytes, .dtype = Dtype::kUint8, .shape = {5056}},
               RandomBytes(5056, random));
  contents->created_unix_ns = 1'700'000'000'123'456'789;
  contents->blocked_ns = [] { return 12'345'678; };
  contents->metrics = {{"accuracy", 0.75}, {"loss", 1.25}};
  contents->user_metadata = R"({"run": "test"})";
  contents->properties = {{"library", "tidemark test"}};
  return contents;
}

ShardIdentity TestIdentity(int64_t step) {
  ShardIdentity identity;
  for (size_t i = 0; i < 16; ++i) {
    identity.store.bytes[i] = 0xa0 + i;
    identity.attempt.bytes[i] = static_cast<uint8_t>(step) + i;
  }
  identity.step = step;
  identity.sequence = 42;
  return identity;
}

FileReference ReferenceTo(const ShardIdentity& identity) {
  return {identity.step, identity.attempt, identity.rank, identity.world_size};
}

WrittenShard WriteShard(const std::string& path, const ShardIdentity& identity, const ShardContents& contents,
                        const ShardWriterOptions& options) {
  auto writer = ShardWriter::Create(PosixFileSystem(), options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  auto written = (*writer)->Write(path, identity, contents);
  EXPECT_TRUE(written.ok()) << written.status();
  return written.ok() ? *std::move(written) : WrittenShard();
}

void ExpectReadsBack(const ShardReader& reader, const TestContents& contents, const ShardReadOptions& options) {
  ASSERT_EQ(reader.index().entries.size(), contents.get().entries.size());
  std::vector<std::vector<std::byte>> bytes;
  for (size_t i = 0; i < contents.get().entries.size(); ++i) {
    EXPECT_EQ(reader.index().entries[i].spec, contents.get().entries[i].spec);
    ASSERT_EQ(reader.RawBytes(i), contents.bytes(i).size());
    bytes.emplace_back(reader.RawBytes(i), std::byte{0xee});
  }
  std::vector<EntryRead> reads;
  for (size_t i = 0; i < bytes.size(); ++i) reads.push_back({i, bytes[i]});
  const auto status = reader.Read(reads, options);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::span<const std::byte> expected = contents.bytes(i);
    EXPECT_TRUE(std::equal(bytes[i].begin(), bytes[i].end(), expected.begin(), expected.end()))
        << contents.get().entries[i].spec.name;
  }
}

std::string BuildShard(const ShardHeader& header, std::string_view data, const ShardIndex& index,
                       const IndexBase& base) {
  std::string file = EncodeShardHeader(header);
  file += data;
  file.resize(AlignUp(file.size()));
  const std::string encoded = EncodeShardIndex(index, base);
  ShardFooter footer;
  footer.index_is_delta = base.file != 0;
  footer.index_offset = file.size();
  footer.index_bytes = encoded.size();
  footer.index_digest = DigestOf(AsBytes(encoded));
  file += encoded;
  file.resize(AlignUp(file.size()));
  footer.file_bytes = file.size() + kShardBlockBytes;
  return file + EncodeShardFooter(footer);
}

size_t CountThreads(size_t expected) {
  namespace fs = std::filesystem;
  const fs::path tasks = "/proc/self/task";
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  fs::path own;
  // With a process's first, ThreadSanitizer starts one of its own, which stays.
  std::thread([&] { own = tasks / std::to_string(gettid()); }).join();
  size_t count = 0;
  do {
    std::this_thread::yield();
    const bool is_listed = fs::exists(own);
    count = static_cast<size_t>(std::distance(fs::directory_iterator(tasks), fs::directory_iterator()));
    if (!is_listed && (expected == 0 || count <= expected)) break;
  } while (absl::Now() < deadline);
  return count;
}

}  // namespace tidemark::storage
