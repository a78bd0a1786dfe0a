// A reader that knows nothing but docs/format.md, read_shard.py, agrees with the library on what is in a shard.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "storage/bytes/byte_reader.h"
#include "storage/records/json_fields.h"
#include "tests/format/golden_contents.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

// What a shell command prints; the test fails if it fails.
std::string OutputOf(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string output;
  char buffer[4096];
  for (size_t size; (size = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, size);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

nlohmann::json ReadWithPython(const std::string& path) {
  const auto output = OutputOf("python3 '" TIDEMARK_SOURCE_DIR "/tests/format/read_shard.py' '" + path + "'");
  return ParseJson(output, nullptr, /*allow_exceptions=*/false);
}

std::string Sha256(const TestDirectory& directory, std::span<const std::byte> bytes) {
  const std::string path = directory / "bytes";
  WriteWhole(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return OutputOf("sha256sum '" + path + "'").substr(0, 64);
}

void ExpectSame(const nlohmann::json& shard, const TestContents& contents) {
  TestDirectory directory;
  ASSERT_TRUE(shard.is_object());
  ASSERT_EQ(shard["entries"].size(), contents.get().entries.size());
  for (size_t i = 0; i < contents.get().entries.size(); ++i) {
    const auto& entry = shard["entries"][i];
    const EntrySpec& spec = contents.get().entries[i].spec;
    SCOPED_TRACE(spec.name);
    EXPECT_EQ(entry["name"], spec.name);
    EXPECT_EQ(entry["kind"], EntryKindName(spec.kind));
    EXPECT_EQ(entry["dtype"], static_cast<int>(spec.dtype));
    EXPECT_EQ(entry["shape"], spec.shape);
    EXPECT_EQ(entry.contains("box_extent"), !spec.whole());
    if (!spec.whole()) {
      EXPECT_EQ(entry["box_offset"], spec.box_offset);
      EXPECT_EQ(entry["box_extent"], spec.box_extent);
    }
    EXPECT_EQ(entry["bytes"], contents.bytes(i).size());
    EXPECT_EQ(entry["sha256"], Sha256(directory, contents.bytes(i)));
  }
  EXPECT_EQ(shard["created_unix_ns"], contents.get().created_unix_ns);
  EXPECT_EQ(shard["blocked_ns"], contents.get().blocked_ns == nullptr ? 0 : contents.get().blocked_ns());
  EXPECT_EQ(shard["user_metadata"], ParseJson(contents.get().user_metadata));
  for (const auto& [key, value] : contents.get().properties) EXPECT_EQ(shard["properties"][key], value);
}

// Two entries of each dtype, one that compresses and one that does not, of several chunks.
TestContents AllDtypes(std::mt19937_64& random) {
  TestContents contents;
  for (uint16_t number = 0; number < 256; ++number) {
    const DtypeInfo* info = FindDtype(number);
    if (info == nullptr) continue;
    constexpr int64_t kElements = 10001;
    std::vector<std::byte> smooth(kElements * info->element_bytes);
    for (size_t i = 0; i < smooth.size(); ++i) smooth[i] = static_cast<std::byte>((i * i / 50) % 7 * 0x91);
    const std::string name(info->name);
    contents.Add(Tensor(name + ".smooth", info->dtype, {73, 137}), smooth);
    contents.Add(Tensor(name + ".noise", info->dtype, {kElements}),
                 RandomBytes(kElements * info->element_bytes, random));
  }
  contents.Add(Tensor("weights.f32", Dtype::kFloat32, {50000}), Weights(Dtype::kFloat32, 50000, random));
  contents.Add(Tensor("weights.bf16", Dtype::kBfloat16, {50000}), Weights(Dtype::kBfloat16, 50000, random));
  contents.Add(Tensor("weights.f64", Dtype::kFloat64, {20000}), Weights(Dtype::kFloat64, 20000, random));
  contents->user_metadata = "{}";
  return contents;
}

TEST(ReadShardInPython, AgreesOnTheGoldenFile) {
  const auto shard = ReadWithPython(TIDEMARK_SOURCE_DIR "/tests/format/golden/format-1.tmk");
  ASSERT_TRUE(shard.is_object());
  ExpectSame(shard, GoldenContents());
  EXPECT_EQ(shard["store_id"], "101112131415161718191a1b1c1d1e1f");
  EXPECT_EQ(shard["attempt"], "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
  EXPECT_EQ(shard["step"], 1000);
  EXPECT_EQ(shard["sequence"], 17);
  EXPECT_EQ(shard["rank"], 1);
  EXPECT_EQ(shard["world_size"], 4);
  EXPECT_EQ(shard["metrics"], (nlohmann::json{{"accuracy", 0.875}, {"loss", "inf"}}));
}

TEST(ReadShardInPython, AgreesOnSeveralBoxesOfATensor) {
  const auto shard = ReadWithPython(TIDEMARK_SOURCE_DIR "/tests/format/golden/header-2.tmk");
  ASSERT_TRUE(shard.is_object());
  EXPECT_EQ(shard["version"], 2);
  ExpectSame(shard, GoldenBoxesContents());
}

TEST(ReadShardInPython, RefusesBoxesOfATensorThatOverlap) {
  auto reader = ShardReader::Open(PosixFileSystem(), TIDEMARK_SOURCE_DIR "/tests/format/golden/header-2.tmk", ".");
  ASSERT_THAT(reader, IsOk());
  ShardIndex index = (*reader)->index();
  index.entries[2].spec.box_offset = {400, 1};
  TestDirectory directory;
  const std::string path = directory / "a.tmk";
  WriteWhole(path, BuildShard((*reader)->header(), std::string(1 << 20, 'x'), index));
  EXPECT_THAT(OutputOf("python3 '" TIDEMARK_SOURCE_DIR "/tests/format/read_shard.py' '" + path + "' 2>&1 || true"),
              ::testing::HasSubstr("ValueError: boxes that overlap"));
}

TEST(ReadShardInPython, AgreesOnEveryDtypeAndCodec) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  for (CodecPolicy policy : {CodecPolicy::kSpace, CodecPolicy::kNone}) {
    std::mt19937_64 random(seed);
    TestContents contents = AllDtypes(random);
    TestDirectory directory;
    WriteShard(directory / "a.tmk", TestIdentity(), *contents, {.policy = policy, .chunk_bytes = 65536});
    const auto shard = ReadWithPython(directory / "a.tmk");
    ExpectSame(shard, contents);
    std::set<int> codecs;
    for (const auto& entry : shard["entries"]) {
      for (int codec : entry["codecs"]) codecs.insert(codec);
    }
    EXPECT_EQ(codecs, policy == CodecPolicy::kNone ? std::set{0} : (std::set{0, 1, 2}));
  }
}

TEST(ReadShardInPython, FollowsReferencesIntoOtherShards) {
  std::mt19937_64 random(4);
  TestContents contents;
  contents.Add(Tensor("w", Dtype::kFloat32, {30000}), Weights(Dtype::kFloat32, 30000, random));
  TestDirectory steps;
  const ShardIdentity first = TestIdentity(1000);
  const std::string folder = steps / StepFolderName(1000, first.attempt);
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/" + ShardFileName(0, 1);
  WriteShard(path, first, *contents, {.chunk_bytes = 65536});
  auto reader = ShardReader::Open(PosixFileSystem(), path, steps.path());
  ASSERT_THAT(reader, IsOk());
  ShardIndex index = (*reader)->index();
  index.files = {{1000, first.attempt, 0, 1}};
  for (ChunkRecord& chunk : index.chunks) chunk.file = 1;
  const std::string second = steps / StepFolderName(1001, TestIdentity(1001).attempt);
  std::filesystem::create_directory(second);
  WriteWhole(second + "/" + ShardFileName(0, 1), BuildShard({TestIdentity(1001), 65536}, "", index));
  ExpectSame(ReadWithPython(second + "/" + ShardFileName(0, 1)), contents);
}

TEST(ReadShardInPython, FollowsADeltaToItsBase) {
  std::mt19937_64 random(5);
  constexpr size_t kEntries = 12'000;
  std::vector<std::vector<std::byte>> data;
  for (size_t i = 0; i < kEntries; ++i) data.push_back(RandomBytes(8, random));
  const auto contents = [&](const std::string& last) {
    TestContents made;
    for (size_t i = 0; i < kEntries; ++i) {
      made.Add(Tensor(i + 1 < kEntries ? "layers." + std::to_string(i) + ".bias" : last, Dtype::kUint8, {8}), data[i]);
    }
    return made;
  };
  TestDirectory steps;
  const auto path = [&](int64_t step) {
    const std::string folder = steps / StepFolderName(step, TestIdentity(step).attempt);
    std::filesystem::create_directories(folder);
    return folder + "/" + ShardFileName(0, 1);
  };
  const WrittenShard first = WriteShard(path(1000), TestIdentity(1000), *contents("last"), {});
  data[3] = RandomBytes(8, random);
  data[500] = RandomBytes(8, random);
  TestContents changed = contents("last under another name");
  changed->reuse = first.reusable.get();
  EXPECT_TRUE(WriteShard(path(1001), TestIdentity(1001), *changed, {}).footer.index_is_delta);
  changed->reuse = nullptr;
  EXPECT_FALSE(WriteShard(path(1002), TestIdentity(1002), *changed, {}).footer.index_is_delta);
  const auto entries = ReadWithPython(path(1001))["entries"];
  EXPECT_EQ(entries.size(), kEntries);
  EXPECT_TRUE(entries == ReadWithPython(path(1002))["entries"]);
}

}  // namespace
}  // namespace tidemark::storage
