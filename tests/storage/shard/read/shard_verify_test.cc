#include "storage/shard/read/shard_verify.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/shard/format/shard_index_layout.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ShardVerifyTest : public ::testing::Test {
 protected:
  ShardVerifyTest() : contents_(MixedContents(131072, random_)) {
    WriteShard(path_, TestIdentity(), *contents_, {.chunk_bytes = 131072});
    good_ = ReadWhole(path_);
    reader_ = *ShardReader::Open(PosixFileSystem(), path_, directory_.path());
  }
  absl::StatusOr<ShardVerification> VerifyStatus(FileSystem& files = PosixFileSystem(),
                                                 const ShardIdentity* expected = nullptr) {
    return VerifyShard(files, path_, directory_.path(), expected, {.codec_threads = 2, .io_depth = 4});
  }
  ShardVerification Verify(const ShardIdentity* expected = nullptr) {
    auto result = VerifyStatus(PosixFileSystem(), expected);
    EXPECT_THAT(result, IsOk());
    return result.ok() ? *std::move(result) : ShardVerification();
  }
  ShardVerification VerifySample(const ChunkSample& sample) {
    auto result = VerifyShard(PosixFileSystem(), path_, directory_.path(), nullptr, {.codec_threads = 2, .io_depth = 4},
                              nullptr, sample);
    EXPECT_THAT(result, IsOk());
    return result.ok() ? *std::move(result) : ShardVerification();
  }
  // One byte of the file, in place: another value than it has.
  void Change(uint64_t offset, char value) {
    auto file = std::fopen(path_.c_str(), "r+b");
    std::fseek(file, offset, SEEK_SET);
    std::fputc(value, file);
    std::fclose(file);
  }
  // Names of the entries whose bytes depend on that byte.
  std::vector<std::string> EntriesAt(uint64_t offset) const {
    std::vector<std::string> names;
    const ShardIndex& index = reader_->index();
    for (const ShardEntry& entry : index.entries) {
      for (uint64_t i = entry.first_chunk; i < entry.first_chunk + entry.chunk_count; ++i) {
        const ChunkRecord& chunk = index.chunks[i];
        if (offset >= chunk.offset && offset < chunk.offset + chunk.stored_bytes) names.push_back(entry.spec.name);
      }
    }
    return names;
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "a.tmk";
  std::mt19937_64 random_{1};
  TestContents contents_;
  std::string good_;
  std::unique_ptr<ShardReader> reader_;
};

TEST_F(ShardVerifyTest, FindsNothingInASoundShard) {
  const ShardIdentity identity = TestIdentity();
  uint64_t progress = 0;
  auto result = VerifyShard(PosixFileSystem(), path_, directory_.path(), &identity, {},
                            [&](uint64_t bytes) { progress += bytes; });
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->damage, IsEmpty());
  EXPECT_TRUE(result->readable);
  EXPECT_EQ(result->chunks, reader_->index().chunks.size());
  EXPECT_EQ(result->bytes_read, good_.size());
  EXPECT_EQ(progress, good_.size());
  EXPECT_EQ(VerifyBytes(reader_->footer(), reader_->index()), good_.size());
}

TEST_F(ShardVerifyTest, ReadsNoFurtherOnceItIsCancelled) {
  std::atomic<size_t> asked = 0;
  const auto verify = [&](size_t answers_no) {
    asked = 0;
    return VerifyShard(PosixFileSystem(), path_, directory_.path(), nullptr, {.codec_threads = 1}, nullptr, {},
                       [&asked, answers_no] { return ++asked > answers_no; });
  };
  for (const size_t answers_no : {0, 1, 3}) {
    EXPECT_THAT(verify(answers_no), StatusIs(StatusCode::kCancelled, HasSubstr(path_)));
    EXPECT_EQ(asked, answers_no + 1);
  }
  EXPECT_THAT(verify(1'000'000), IsOk());
  EXPECT_GT(asked, reader_->index().chunks.size()) << "before each of them";
}

TEST_F(ShardVerifyTest, FindsEverySingleChangedByteAndSaysWhichEntry) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  int in_chunks = 0;
  for (int i = 0; i < 1000; ++i) {
    // Half of them anywhere, which is mostly in chunks; half in what is not much but must not be missed.
    const uint64_t index_offset = reader_->footer().index_offset;
    uint64_t offset = random() % good_.size();
    if (i % 4 == 1) offset = random() % 128;
    if (i % 4 == 3) offset = index_offset + random() % (good_.size() - index_offset);
    const char value = static_cast<char>(good_[offset] ^ (1 + random() % 255));
    Change(offset, value);
    const ShardVerification result = Verify();
    ASSERT_EQ(result.damage.size(), 1u) << "byte " << offset << " changed to " << int{value};
    EXPECT_EQ(result.damage[0].path, path_);
    EXPECT_THAT(result.damage[0].what, HasSubstr(path_));
    EXPECT_EQ(result.damage[0].entries, EntriesAt(offset)) << "byte " << offset << ": " << result.damage[0].what;
    in_chunks += !result.damage[0].entries.empty();
    Change(offset, good_[offset]);
  }
  EXPECT_GT(in_chunks, 100);
  EXPECT_THAT(Verify().damage, IsEmpty());
}

TEST_F(ShardVerifyTest, FindsBytesBetweenChunks) {
  // The first chunk of what is at least 64 KiB behind one that does not end at a block.
  uint64_t gap = 0;
  for (size_t i = 1; i < reader_->index().chunks.size(); ++i) {
    const ChunkRecord& before = reader_->index().chunks[i - 1];
    if (before.offset + before.stored_bytes < reader_->index().chunks[i].offset)
      gap = before.offset + before.stored_bytes;
  }
  ASSERT_NE(gap, 0u);
  Change(gap, 1);
  const auto result = Verify();
  ASSERT_EQ(result.damage.size(), 1u);
  EXPECT_EQ(result.damage[0].what, fmt::format("{}: padding byte at {}: expected zero, found 0x01", path_, gap));
  EXPECT_THAT(result.damage[0].entries, IsEmpty());
  EXPECT_TRUE(result.damage[0].unused);
  EXPECT_TRUE(result.readable);
}

TEST_F(ShardVerifyTest, ReadsAsManyChunksAsTheSampleHas) {
  const uint64_t total = reader_->index().chunks.size();
  ASSERT_GT(total, 10u);
  for (const double share : {0.0, 0.01, 0.25, 0.5, 0.9, 1.0}) {
    const ShardVerification result = VerifySample({.share = share, .seed = 7});
    EXPECT_THAT(result.damage, IsEmpty()) << share;
    EXPECT_TRUE(result.readable);
    EXPECT_EQ(result.chunks, static_cast<uint64_t>(std::ceil(share * static_cast<double>(total)))) << share;
    EXPECT_EQ(result.chunks_total, total);
    EXPECT_EQ(result.bytes_read == good_.size(), share == 1) << share;
  }
}

TEST_F(ShardVerifyTest, FindsDamageInHeaderIndexAndFooterWithoutReadingAChunk) {
  const ShardFooter footer = reader_->footer();
  for (const uint64_t offset : {uint64_t{100}, footer.index_offset + 3, footer.index_offset + footer.index_bytes,
                                uint64_t{good_.size()} - 1000}) {
    Change(offset, static_cast<char>(~good_[offset]));
    EXPECT_EQ(VerifySample({.share = 0}).damage.size(), 1u) << offset;
    Change(offset, good_[offset]);
  }
  const uint64_t in_chunk = reader_->index().chunks[0].offset + 5;
  Change(in_chunk, static_cast<char>(~good_[in_chunk]));
  EXPECT_THAT(VerifySample({.share = 0}).damage, IsEmpty());
}

// Every chunk is damaged, so that what was found is what was drawn.
TEST_F(ShardVerifyTest, DrawsTheSameChunksForTheSameSeed) {
  for (const ChunkRecord& chunk : reader_->index().chunks)
    Change(chunk.offset, static_cast<char>(~good_[chunk.offset]));
  const auto drawn = [&](const ChunkSample& sample) {
    std::set<std::string> what;
    for (const ShardDamage& damage : VerifySample(sample).damage) what.insert(damage.what);
    return what;
  };
  const auto seed = SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const std::set<std::string> quarter = drawn({.share = 0.25, .seed = seed});
  EXPECT_EQ(quarter.size(), VerifySample({.share = 0.25, .seed = seed}).chunks);
  EXPECT_EQ(drawn({.share = 0.25, .seed = seed}), quarter);
  const std::set<std::string> half = drawn({.share = 0.5, .seed = seed});
  EXPECT_TRUE(std::includes(half.begin(), half.end(), quarter.begin(), quarter.end()));
  std::set<std::string> all;
  for (uint64_t other = 0; other < 64; ++other) all.merge(drawn({.share = 0.25, .seed = seed + other}));
  EXPECT_EQ(all.size(), Verify().damage.size());
}

TEST_F(ShardVerifyTest, ReportsEveryDamageInTheOrderOfTheFile) {
  const auto& chunks = reader_->index().chunks;
  Change(chunks[4].offset + 5, ~good_[chunks[4].offset + 5]);
  Change(chunks[0].offset + 5, ~good_[chunks[0].offset + 5]);
  const auto result = Verify();
  ASSERT_EQ(result.damage.size(), 2u);
  EXPECT_THAT(result.damage[0].what,
              HasSubstr(fmt::format("chunk 0, {} bytes at 4096: checksum", chunks[0].stored_bytes)));
  EXPECT_THAT(result.damage[0].entries, ElementsAre("model.embed.weight", "model.head.weight"));
  EXPECT_THAT(result.damage[1].entries, ElementsAre("data.noise"));
}

TEST_F(ShardVerifyTest, CountsAFlippedVersionAsDamage) {
  Change(8, 3);
  const auto result = Verify();
  ASSERT_EQ(result.damage.size(), 1u);
  EXPECT_THAT(result.damage[0].what, HasSubstr("newer version"));
  EXPECT_FALSE(result.readable);
}

TEST_F(ShardVerifyTest, LooksAtTheFooterBesideADamagedHeader) {
  Change(100, 1);
  Change(good_.size() - 1000, 1);
  const auto result = Verify();
  ASSERT_EQ(result.damage.size(), 2u);
  EXPECT_THAT(result.damage[0].what, HasSubstr("shard header: checksum"));
  EXPECT_THAT(result.damage[1].what, HasSubstr("shard footer: checksum"));
}

TEST_F(ShardVerifyTest, FindsEveryTruncationAndExtension) {
  for (uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{12288}, uint64_t{good_.size() - 1},
                        uint64_t{good_.size() - 4096}, uint64_t{good_.size() + 1}, uint64_t{good_.size() + 4096}}) {
    WriteWhole(path_, good_);
    std::filesystem::resize_file(path_, size);
    const auto result = Verify();
    ASSERT_EQ(result.damage.size(), 1u) << size;
    EXPECT_THAT(result.damage[0].what, HasSubstr(path_));
    EXPECT_FALSE(result.readable);
  }
}

TEST_F(ShardVerifyTest, ReportsAFileThatIsGone) {
  std::filesystem::remove(path_);
  const auto result = Verify();
  ASSERT_EQ(result.damage.size(), 1u);
  EXPECT_THAT(result.damage[0].what, HasSubstr(path_));
}

TEST_F(ShardVerifyTest, ReportsAShardOfAnotherIdentity) {
  ShardIdentity expected = TestIdentity();
  expected.sequence = 43;
  const auto result = Verify(&expected);
  ASSERT_EQ(result.damage.size(), 1u);
  EXPECT_THAT(result.damage[0].what, AllOf(HasSubstr("sequence 43, found"), HasSubstr("sequence 42")));
}

TEST_F(ShardVerifyTest, ReturnsTheErrorOfEveryCall) {
  FailingFileSystem files(PosixFileSystem());
  ASSERT_THAT(VerifyStatus(files), IsOk());
  auto calls = files.calls();
  std::erase_if(calls, [](const auto& call) { return call.operation == "Close"; });
  ASSERT_GT(calls.size(), 6u);
  const size_t threads = CountThreads();
  for (const auto& call : calls) {
    SCOPED_TRACE(call.operation);
    files.Reset();
    files.FailCall(call.index, absl::InternalError("injected"));
    EXPECT_THAT(VerifyStatus(files), StatusIs(StatusCode::kInternal, HasSubstr("injected")));
    EXPECT_LE(CountThreads(threads), threads);
  }
}

TEST_F(ShardVerifyTest, ReportsARangeThatCannotBeRead) {
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("QueueRead", absl::DataLossError("read a.tmk: the file ended"));
  auto result = VerifyStatus(files);
  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->damage.size(), 1u);
  EXPECT_EQ(result->damage[0].what, "read a.tmk: the file ended");
  EXPECT_THAT(result->damage[0].entries, ::testing::Contains("model.embed.weight"));
}

// Ranges of several entries' chunks, and entries tied across others.
TEST(ShardVerifyEntries, NamesEveryEntryOfARangeThatCannotBeReadInTheirOrder) {
  TestDirectory directory;
  const std::string path = directory / "many.tmk";
  std::mt19937_64 random(3);
  TestContents contents;
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) {
    names.push_back(fmt::format("e{}", i));
    const uint32_t bytes = i == 5 ? 0 : 100 + i * 1000;
    contents.Add(Tensor(names.back(), Dtype::kUint8, {bytes}), RandomBytes(bytes, random));
  }
  for (int i : {3, 11, 0}) {
    names.push_back(fmt::format("tied to e{}", i));
    contents.Tie(Tensor(names.back(), Dtype::kUint8, contents->entries[i].spec.shape), i);
  }
  WriteShard(path, TestIdentity(), *contents, {.chunk_bytes = 4096});
  names.erase(names.begin() + 5);  // has no bytes to lose
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("QueueRead", absl::DataLossError("gone"));
  auto result = VerifyShard(files, path, directory.path(), nullptr, {});
  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->damage.size(), 1u);
  EXPECT_EQ(result->damage[0].entries, names);
}

// Chunks far apart, as no writer of ours leaves them, and larger than a range.
TEST(ShardVerifySparse, CoversLargeGapsAndLargeChunks) {
  TestDirectory directory;
  std::mt19937_64 random(3);
  constexpr uint32_t kChunkBytes = 4 << 20;
  std::string data(10 << 20, '\0');
  const auto noise = RandomBytes(kChunkBytes, random);
  ShardIndex index;
  ChunkRecord chunk;
  chunk.raw_bytes = chunk.stored_bytes = kChunkBytes;
  chunk.offset = 4096 + (3 << 20) + 4096;
  chunk.checksum = ChecksumOf(noise);
  chunk.digest = DigestOf(noise);
  std::memcpy(data.data() + chunk.offset - 4096, noise.data(), noise.size());
  index.chunks = {chunk};
  index.entries = {{Tensor("noise", Dtype::kUint8, {kChunkBytes}), 0, 1}};
  const std::string good = BuildShard({TestIdentity(), kChunkBytes}, data, index);
  const std::string path = directory / "sparse.tmk";
  const auto verify = [&](const std::string& bytes) {
    WriteWhole(path, bytes);
    auto result = VerifyShard(PosixFileSystem(), path, directory.path(), nullptr, {});
    EXPECT_THAT(result, IsOk());
    EXPECT_EQ(result->bytes_read, good.size());
    return result->damage;
  };
  EXPECT_THAT(verify(good), IsEmpty());
  const uint64_t end = chunk.offset + kChunkBytes;
  for (uint64_t offset : {uint64_t{4096}, uint64_t{4096 + (1 << 20)}, uint64_t{4095 + (1 << 20)}, chunk.offset - 1, end,
                          end + (1 << 20), uint64_t{data.size() + 4095}}) {
    std::string changed = good;
    changed[offset] = 1;
    const auto damage = verify(changed);
    ASSERT_EQ(damage.size(), 1u) << offset;
    EXPECT_THAT(damage[0].what, HasSubstr(fmt::format("padding byte at {}", offset)));
  }
  std::string changed = good;
  changed[chunk.offset + (2 << 20)] ^= 1;
  EXPECT_THAT(verify(changed)[0].entries, ElementsAre("noise"));
  EXPECT_FALSE(verify(changed)[0].unused);
}

TEST(ShardVerifySparse, ReadsTheLongestZerosOfAnIndexAndRefusesLongerOnes) {
  TestDirectory directory;
  const std::string path = directory / "zeros.tmk";
  ShardIndex index;
  index.properties = {{std::string(EntrySpec::kNameBytesMax, '\0'), std::string(kPropertyBytesMax, '\0')},
                      {"k", std::string(kPropertyBytesMax, '\0')}};
  const auto verify = [&] {
    WriteWhole(path, BuildShard({TestIdentity(), 4096}, "", index));
    auto result = VerifyShard(PosixFileSystem(), path, directory.path(), nullptr, {});
    EXPECT_THAT(result, IsOk());
    return result.ok() ? std::move(result->damage) : std::vector<ShardDamage>();
  };
  EXPECT_THAT(verify(), IsEmpty());
  index.user_metadata = std::string(kIndexZerosMax + 2 * kShardBlockBytes, '\0');  // which is no JSON
  const auto damage = verify();
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_THAT(damage[0].what,
              HasSubstr("zeros.tmk at 4096: shard index: expected at most 131072 zeros in a row, found more"));
}

// A hole costs its author nothing; what is planned of it must cost the reader little, however long it is.
TEST(ShardVerifySparse, ReadsAHoleOfMoreThanAGibibytePartByPart) {
  constexpr uint64_t kHole = (uint64_t{1} << 30) + (64 << 20);
  TestDirectory directory;
  const std::string path = directory / "hole.tmk";
  const std::string index = EncodeShardIndex({});
  const uint64_t index_offset = kShardBlockBytes + kHole;
  const std::string footer = EncodeShardFooter({.file_bytes = index_offset + 2 * kShardBlockBytes,
                                                .index_offset = index_offset,
                                                .index_bytes = index.size(),
                                                .index_digest = DigestOf(AsBytes(index))});
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const auto put = [&](uint64_t offset, const std::string& bytes) {
    ASSERT_EQ(std::fseek(file, static_cast<long>(offset), SEEK_SET), 0);
    ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  };
  put(0, EncodeShardHeader({TestIdentity(), 4096}));
  put(index_offset - 5, "x");
  put(index_offset, index);
  put(index_offset + kShardBlockBytes, footer);
  ASSERT_EQ(std::fclose(file), 0);
  const auto result = VerifyShard(PosixFileSystem(), path, directory.path(), nullptr, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->bytes_read, index_offset + 2 * kShardBlockBytes);
  ASSERT_EQ(result->damage.size(), 1u);
  EXPECT_THAT(result->damage[0].what, HasSubstr(fmt::format("padding byte at {}: expected zero", index_offset - 5)));
}

// Two shards, of which the second uses chunks of the first.
class ReferencedVerifyTest : public ::testing::Test {
 protected:
  ReferencedVerifyTest() {
    std::mt19937_64 random(2);
    TestContents contents;
    contents.Add(Tensor("w", Dtype::kUint8, {100000}), RandomBytes(100000, random));
    const ShardIdentity first = TestIdentity(1000);
    std::filesystem::create_directory(directory_ / StepFolderName(1000, first.attempt));
    first_path_ = directory_ / (StepFolderName(1000, first.attempt) + "/" + ShardFileName(0, 1));
    WriteShard(first_path_, first, *contents, {.chunk_bytes = 65536});
    auto reader = *ShardReader::Open(PosixFileSystem(), first_path_, directory_.path());
    ShardIndex index = reader->index();
    index.files = {{1000, first.attempt, 0, 1}};
    for (ChunkRecord& chunk : index.chunks) chunk.file = 1;
    WriteWhole(path_, BuildShard({TestIdentity(1001), 65536}, "", index));
  }
  std::vector<ShardDamage> Verify() {
    auto result = VerifyShard(PosixFileSystem(), path_, directory_.path(), nullptr, {});
    EXPECT_THAT(result, IsOk());
    return result->damage;
  }
  TestDirectory directory_;
  const std::string path_ = directory_ / "second.tmk";
  std::string first_path_;
};

TEST_F(ReferencedVerifyTest, ReadsReferencedChunksToo) {
  auto result = VerifyShard(PosixFileSystem(), path_, directory_.path(), nullptr, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->damage, IsEmpty());
  EXPECT_EQ(result->chunks, 2u);
  EXPECT_EQ(result->bytes_read, 3 * 4096 + 100000u);
}

TEST_F(ReferencedVerifyTest, ReportsDamageInTheOtherShard) {
  std::string bytes = ReadWhole(first_path_);
  bytes[70000] ^= 1;
  WriteWhole(first_path_, bytes);
  const auto damage = Verify();
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].path, first_path_);
  EXPECT_THAT(damage[0].what, HasSubstr(first_path_ + ": chunk 1, 34464 bytes at 69632: checksum"));
  EXPECT_THAT(damage[0].entries, ElementsAre("w"));
}

TEST_F(ReferencedVerifyTest, ReportsThatTheOtherShardIsGone) {
  std::filesystem::remove(first_path_);
  const auto damage = Verify();
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].path, first_path_);
  EXPECT_THAT(damage[0].entries, ElementsAre("w"));
}

TEST_F(ReferencedVerifyTest, ReportsThatTheOtherShardIsCutShort) {
  std::filesystem::resize_file(first_path_, 81920);
  const auto damage = Verify();
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].path, first_path_);
  EXPECT_THAT(damage[0].entries, ElementsAre("w"));
}

}  // namespace
}  // namespace tidemark::storage
