#include "storage/shard/read/shard_reader.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ShardReaderTest : public ::testing::Test {
 protected:
  ShardReaderTest() : contents_(MixedContents(65536, random_)) {
    WriteShard(path_, TestIdentity(), *contents_, {.chunk_bytes = 65536});
  }
  std::unique_ptr<ShardReader> Open(FileSystem& files = PosixFileSystem()) {
    auto reader = ShardReader::Open(files, path_, directory_.path());
    EXPECT_THAT(reader, IsOk());
    return reader.ok() ? *std::move(reader) : nullptr;
  }
  absl::Status OpenStatus() { return ShardReader::Open(PosixFileSystem(), path_, directory_.path()).status(); }

  TestDirectory directory_;
  const std::string path_ = directory_ / "a.tmk";
  std::mt19937_64 random_{1};
  TestContents contents_;
};

TEST_F(ShardReaderTest, ReadsEntriesByThemselves) {
  auto reader = Open();
  for (size_t i = reader->index().entries.size(); i-- > 0;) {
    std::vector<std::byte> bytes(reader->RawBytes(i));
    const EntryRead read{i, bytes};
    ASSERT_THAT(reader->Read({&read, 1}, {.codec_threads = 2, .io_depth = 1}), IsOk());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), contents_.bytes(i).begin(), contents_.bytes(i).end()));
  }
}

TEST_F(ShardReaderTest, ReadsTheSameEntryToSeveralPlaces) {
  auto reader = Open();
  std::vector<std::vector<std::byte>> copies(5, std::vector<std::byte>(reader->RawBytes(0)));
  std::vector<EntryRead> reads;
  for (size_t i = 0; i < copies.size(); ++i) reads.push_back({i % 2, copies[i]});  // 1 is tied to 0
  ASSERT_THAT(reader->Read(reads, {.codec_threads = 3}), IsOk());
  for (const auto& copy : copies) {
    EXPECT_TRUE(std::equal(copy.begin(), copy.end(), contents_.bytes(0).begin(), contents_.bytes(0).end()));
  }
}

TEST_F(ShardReaderTest, ReadsOnSeveralThreadsAtOnce) {
  auto reader = Open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { ExpectReadsBack(*reader, contents_, {.codec_threads = 2}); });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ShardReaderTest, SaysHowManyBytesAnEntryTakes) {
  auto reader = Open();
  uint64_t stored = 0;
  for (size_t i = 0; i < reader->index().entries.size(); ++i) {
    EXPECT_EQ(reader->RawBytes(i), contents_.bytes(i).size());
    EXPECT_EQ(reader->ReusedBytes(i), 0u);
    if (contents_->entries[i].alias_of < 0) stored += reader->StoredBytes(i);
  }
  EXPECT_EQ(reader->StoredBytes(0), reader->StoredBytes(1));
  uint64_t expected = 0;
  for (const ChunkRecord& chunk : reader->index().chunks) expected += chunk.stored_bytes;
  EXPECT_EQ(stored, expected);
}

TEST_F(ShardReaderTest, RefusesADestinationOfAnotherSize) {
  auto reader = Open();
  for (size_t size : {0, 1, 65536, 200000}) {
    std::vector<std::byte> bytes(size);
    const EntryRead read{0, bytes};
    EXPECT_THAT(reader->Read({&read, 1}, {}),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(path_), HasSubstr("entry 'model.embed.weight': expected a destination of "
                                                           "196628 bytes, found " +
                                                           std::to_string(size)))));
  }
}

TEST_F(ShardReaderTest, ReadsWindows) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  auto reader = Open();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<EntryRead> reads;
    for (size_t i = 0; i < 40; ++i) {
      const size_t entry = random() % reader->index().entries.size();
      const uint64_t begin = random() % (reader->RawBytes(entry) + 1);
      bytes.emplace_back(random() % (reader->RawBytes(entry) - begin + 1));
      reads.push_back({.entry = entry, .begin = begin});
    }
    for (size_t i = 0; i < reads.size(); ++i) reads[i].destination = bytes[i];
    ASSERT_THAT(reader->Read(reads, {.codec_threads = 2}), IsOk());
    for (size_t i = 0; i < reads.size(); ++i) {
      const auto expected = contents_.bytes(reads[i].entry).subspan(*reads[i].begin, bytes[i].size());
      ASSERT_TRUE(std::equal(bytes[i].begin(), bytes[i].end(), expected.begin(), expected.end()))
          << "entry " << reads[i].entry << ", " << bytes[i].size() << " bytes from " << *reads[i].begin;
    }
  }
}

TEST_F(ShardReaderTest, TouchesOnlyTheChunksOfAWindow) {
  // Entry 0 has four chunks; all but the third are damaged.
  std::string bytes = ReadWhole(path_);
  const std::vector<ChunkRecord> chunks = Open()->index().chunks;
  for (const size_t chunk : {0, 1, 3}) bytes[chunks[chunk].offset] ^= 1;
  WriteWhole(path_, bytes);
  FailingFileSystem files(PosixFileSystem());
  auto reader = Open(files);
  files.Reset();
  std::vector<std::byte> window(65536);
  const EntryRead whole_chunk{0, window, 2 * 65536};
  EXPECT_THAT(reader->Read({&whole_chunk, 1}, {}), IsOk());
  EXPECT_THAT(files.operations(), testing::ElementsAre("NewIoQueue", "QueueRead"));
  const EntryRead inside{0, std::span(window).first(100), 2 * 65536 + 1000};
  EXPECT_THAT(reader->Read({&inside, 1}, {}), IsOk());
  EXPECT_TRUE(std::equal(window.begin(), window.begin() + 100, contents_.bytes(0).begin() + 2 * 65536 + 1000));
  const EntryRead one_more{0, window, 2 * 65536 - 1};
  EXPECT_THAT(reader->Read({&one_more, 1}, {}), StatusIs(StatusCode::kDataLoss, HasSubstr("chunk 1, ")));
  const EntryRead nothing{0, {}, 0};
  files.Reset();
  EXPECT_THAT(reader->Read({&nothing, 1}, {}), IsOk());
  EXPECT_TRUE(files.operations().empty());
}

TEST_F(ShardReaderTest, RefusesAWindowThatDoesNotLieInItsEntry) {
  auto reader = Open();
  std::vector<std::byte> bytes(10);
  for (const uint64_t begin : {uint64_t{196628 - 9}, uint64_t{196629}, ~uint64_t{0}, ~uint64_t{0} - 9}) {
    const EntryRead read{0, bytes, begin};
    EXPECT_THAT(
        reader->Read({&read, 1}, {}),
        StatusIs(StatusCode::kOutOfRange,
                 AllOf(HasSubstr(path_), HasSubstr("entry 'model.embed.weight' has 196628 bytes: 10 bytes from " +
                                                   std::to_string(begin)))));
  }
  const EntryRead last{0, bytes, 196628 - 10};
  EXPECT_THAT(reader->Read({&last, 1}, {}), IsOk());
}

TEST_F(ShardReaderTest, ReadsRawChunksToAlignedDestinationsAndTheirCopies) {
  const std::string path = directory_ / "raw.tmk";
  WriteShard(path, TestIdentity(), *contents_, {.policy = CodecPolicy::kNone, .chunk_bytes = 65536});
  auto reader = ShardReader::Open(PosixFileSystem(), path, directory_.path());
  ASSERT_THAT(reader, IsOk());
  constexpr std::byte kUntouched{0xa5};
  std::vector<AlignedBuffer> buffers;
  std::vector<EntryRead> reads;
  for (const size_t shift : {0, 64}) {
    for (size_t i = 0; i < contents_->entries.size(); ++i) {
      buffers.emplace_back((*reader)->RawBytes(i) + shift + 1);
      std::fill(buffers.back().span().begin(), buffers.back().span().end(), kUntouched);
      reads.push_back({i, buffers.back().span().subspan(shift, (*reader)->RawBytes(i))});
    }
  }
  ASSERT_THAT((*reader)->Read(reads, {.codec_threads = 2}), IsOk());
  for (const EntryRead& read : reads) {
    const auto expected = contents_.bytes(read.entry);
    EXPECT_TRUE(std::equal(read.destination.begin(), read.destination.end(), expected.begin(), expected.end()));
    EXPECT_EQ(*(read.destination.data() + read.destination.size()), kUntouched);
  }
  // What was read to its place is checked there.
  const ChunkRecord chunk = (*reader)->index().chunks[0];
  std::string bytes = ReadWhole(path);
  bytes[chunk.offset + chunk.stored_bytes - 1] ^= 1;
  WriteWhole(path, bytes);
  EXPECT_THAT((*reader)->Read({reads.data(), 1}, {}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("chunk 0, 65536 bytes")));
}

TEST_F(ShardReaderTest, RefusesAnEntryThatIsNotThere) {
  const EntryRead read{contents_->entries.size(), {}};
  EXPECT_THAT(Open()->Read({&read, 1}, {}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("does not exist")));
}

TEST_F(ShardReaderTest, SaysWhereADamagedChunkIs) {
  auto reader = Open();
  const ChunkRecord& chunk = reader->index().chunks[1];
  std::string bytes = ReadWhole(path_);
  bytes[chunk.offset + 7] ^= 1;
  WriteWhole(path_, bytes);
  auto damaged = Open();
  std::vector<std::byte> out(damaged->RawBytes(0));
  const EntryRead read{0, out};
  EXPECT_THAT(damaged->Read({&read, 1}, {}),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("read " + path_ + ": entry 'model.embed.weight', chunk 1, " +
                                       std::to_string(chunk.stored_bytes) + " bytes at " +
                                       std::to_string(chunk.offset) + ": checksum of the stored bytes: expected 0x"),
                             HasSubstr(", found 0x"))));
  // The others are not touched by it.
  std::vector<std::byte> noise(damaged->RawBytes(3));
  const EntryRead other{3, noise};
  EXPECT_THAT(damaged->Read({&other, 1}, {}), IsOk());
}

// In place, so that who reads it meanwhile finds the one or the other.
void Overwrite(const std::string& path, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(file.good()) << path;
}

// The file is damaged when the queue begins to read, and sound when a chunk of it is read again.
TEST_F(ShardReaderTest, ReadsAChunkAnewThatDoesNotVerify) {
  for (const CodecPolicy policy : {CodecPolicy::kSpace, CodecPolicy::kNone}) {
    SCOPED_TRACE(CodecPolicyName(policy));
    const std::string path = directory_ / std::string(CodecPolicyName(policy));
    WriteShard(path, TestIdentity(), *contents_, {.policy = policy, .chunk_bytes = 65536});
    FailingFileSystem files(PosixFileSystem());
    auto reader = ShardReader::Open(files, path, directory_.path());
    ASSERT_THAT(reader, IsOk());
    const std::string sound = ReadWhole(path);
    std::string damaged = sound;
    for (const ChunkRecord& chunk : (*reader)->index().chunks) damaged[chunk.offset + chunk.stored_bytes / 2] ^= 1;
    std::atomic<bool> is_fresh = true;
    std::atomic<int> again = 0;
    files.SetGate([&](const std::string& operation, const std::string&) {
      if (operation == "QueueRead" && is_fresh.exchange(false)) Overwrite(path, damaged);
      if (operation != "ReadAt") return;
      ++again;
      Overwrite(path, sound);
    });
    std::vector<AlignedBuffer> buffers;
    std::vector<EntryRead> reads;
    for (size_t i = 0; i < contents_->entries.size(); ++i) {
      buffers.emplace_back((*reader)->RawBytes(i) + 1);
      reads.push_back({i, buffers.back().span().first((*reader)->RawBytes(i))});
    }
    // A window, too: what is wanted of the chunk is a part.
    std::vector<std::byte> window(1000);
    reads.push_back({0, window, 65000});
    for (const EntryRead& read : reads) {
      is_fresh = true;
      again = 0;
      ASSERT_THAT((*reader)->Read({&read, 1}, {.codec_threads = 1, .io_depth = 1}), IsOk());
      EXPECT_TRUE(again > 0 || read.destination.empty());
      const auto expected = contents_.bytes(read.entry).subspan(read.begin.value_or(0), read.destination.size());
      EXPECT_TRUE(std::equal(read.destination.begin(), read.destination.end(), expected.begin(), expected.end()));
    }
  }
}

TEST_F(ShardReaderTest, ReturnsTheErrorOfReadingAChunkAnew) {
  FailingFileSystem files(PosixFileSystem());
  auto reader = Open(files);
  std::string bytes = ReadWhole(path_);
  bytes[reader->index().chunks[0].offset] ^= 1;
  WriteWhole(path_, bytes);
  files.FailOperation("ReadAt", absl::InternalError("injected"));
  std::vector<std::byte> out(reader->RawBytes(0));
  const EntryRead read{0, out};
  // Nobody knows whether it is damaged.
  EXPECT_THAT(reader->Read({&read, 1}, {}),
              StatusIs(StatusCode::kInternal, AllOf(HasSubstr("chunk 0, "), HasSubstr("injected"))));
}

TEST_F(ShardReaderTest, RefusesDestinationsThatOverlap) {
  auto reader = Open();
  FailingFileSystem files(PosixFileSystem());
  std::vector<std::byte> out(2 * 196628, std::byte{7});
  const std::vector<std::byte> before = out;
  const auto first = std::span(out).subspan(1000, 196628);  // for entry 0
  const auto refused =
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr(path_), HasSubstr("the destinations of the entries '"),
                                                   HasSubstr("'model.embed.weight'"), HasSubstr("overlap")));
  for (const size_t begin : {size_t{1000}, size_t{1000} + 196628 - 1, size_t{5000}, size_t{1000} - 999}) {
    SCOPED_TRACE(begin);
    const EntryRead reads[] = {{3, std::span(out).subspan(begin, 1000), 0}, {0, first}};
    EXPECT_THAT(reader->Read(reads, {}), refused);
  }
  EXPECT_EQ(out, before);
  // Neighbours do not overlap, nor does what has no bytes.
  const EntryRead neighbours[] = {{3, std::span(out).subspan(1000 + 196628, 1000), 0},
                                  {0, first},
                                  {3, std::span(out).subspan(0, 1000), 0},
                                  {2, first.subspan(100, 0)}};
  EXPECT_THAT(reader->Read(neighbours, {}), IsOk());
}

TEST_F(ShardReaderTest, SaysThatThereIsNoFile) {
  std::filesystem::remove(path_);
  EXPECT_THAT(OpenStatus(), StatusIs(StatusCode::kNotFound, HasSubstr(path_)));
}

TEST_F(ShardReaderTest, SaysThatTheFileIsNewer) {
  std::string bytes = ReadWhole(path_);
  bytes[8] = 3;
  WriteWhole(path_, bytes);
  EXPECT_THAT(OpenStatus(), StatusIs(StatusCode::kUnimplemented, AllOf(HasSubstr(path_), HasSubstr("newer version"))));
}

TEST_F(ShardReaderTest, SaysWhichPartIsDamaged) {
  const std::string good = ReadWhole(path_);
  const uint64_t index_offset = Open()->footer().index_offset;
  const auto damage = [&](size_t offset) {
    std::string bytes = good;
    bytes[offset] ^= 4;
    WriteWhole(path_, bytes);
    return OpenStatus();
  };
  EXPECT_THAT(damage(30), StatusIs(StatusCode::kDataLoss, HasSubstr(path_ + ": shard header: checksum")));
  EXPECT_THAT(damage(index_offset + 60),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr(path_ + " at " + std::to_string(index_offset) + ": shard index: digest")));
  EXPECT_THAT(damage(good.size() - 4090),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr(path_ + " at " + std::to_string(good.size() - 4096) + ": shard footer: magic")));
}

TEST_F(ShardReaderTest, RefusesEveryTruncationOfASmallShard) {
  TestContents small;
  small.Add(Tensor("w", Dtype::kUint8, {100}), RandomBytes(100, random_));
  const std::string path = directory_ / "small.tmk";
  const auto written = WriteShard(path, TestIdentity(), *small, {});
  for (uint64_t size = written.footer.file_bytes; size-- > 0;) {
    std::filesystem::resize_file(path, size);
    const auto status = ShardReader::Open(PosixFileSystem(), path, directory_.path()).status();
    ASSERT_THAT(status, StatusIs(StatusCode::kDataLoss, HasSubstr(path))) << size;
  }
}

TEST_F(ShardReaderTest, ReturnsTheErrorOfEveryCallAndLeavesNoThread) {
  FailingFileSystem files(PosixFileSystem());
  for (IoQueueKind io : {IoQueueKind::kThreads, IoQueueKind::kAuto}) {
    const ShardReadOptions options{.codec_threads = 2, .io = io, .io_depth = 2};
    std::vector<std::vector<std::byte>> bytes;
    const auto read_all = [&]() -> absl::Status {
      auto reader = ShardReader::Open(files, path_, directory_.path());
      if (!reader.ok()) return reader.status();
      std::vector<EntryRead> reads;
      bytes.clear();
      for (size_t i = 0; i < (*reader)->index().entries.size(); ++i) bytes.emplace_back((*reader)->RawBytes(i));
      for (size_t i = 0; i < bytes.size(); ++i) reads.push_back({i, bytes[i]});
      return (*reader)->Read(reads, options);
    };
    files.Reset();
    ASSERT_THAT(read_all(), IsOk());
    auto calls = files.calls();
    // A file that was only read has nothing to say when it is closed.
    std::erase_if(calls, [](const auto& call) { return call.operation == "Close"; });
    ASSERT_GT(calls.size(), 6u);
    const size_t threads = CountThreads();
    size_t failed = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      SCOPED_TRACE(calls[i].operation);
      files.Reset();
      files.FailCall(calls[i].index, absl::InternalError("injected"));
      const absl::Status status = read_all();
      EXPECT_LE(CountThreads(threads), threads);
      // How many reads there are depends on when the earlier ones end.
      if (files.calls().size() <= calls[i].index) {
        EXPECT_THAT(status, IsOk());
        continue;
      }
      EXPECT_THAT(status, StatusIs(StatusCode::kInternal, HasSubstr("injected")));
      ++failed;
    }
    EXPECT_GT(failed, 6u);
  }
}

// A shard of step 1001 whose first entry lies in that of step 1000, and whose second is its own.
class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() {
    std::mt19937_64 random(2);
    weights_ = Weights(Dtype::kBfloat16, 100000, random);
    TestContents contents;
    contents.Add(Tensor("other", Dtype::kUint8, {9000}), RandomBytes(9000, random));
    contents.Add(Tensor("w", Dtype::kBfloat16, {100000}), weights_);
    const ShardIdentity first = TestIdentity(1000);
    std::filesystem::create_directory(directory_ / StepFolderName(1000, first.attempt));
    first_path_ = directory_ / (StepFolderName(1000, first.attempt) + "/" + ShardFileName(0, 1));
    WriteShard(first_path_, first, *contents, {.chunk_bytes = 65536});
    auto reader = ShardReader::Open(PosixFileSystem(), first_path_, directory_.path());
    EXPECT_THAT(reader, IsOk());

    ShardIndex index;
    index.files = {{1000, first.attempt, 0, 1}};
    const ShardEntry& old_entry = (*reader)->index().entries[1];
    for (uint64_t i = 0; i < old_entry.chunk_count; ++i) {
      index.chunks.push_back((*reader)->index().chunks[old_entry.first_chunk + i]);
      index.chunks.back().file = 1;
    }
    index.entries = {{Tensor("w", Dtype::kBfloat16, {100000}), 0, index.chunks.size()},
                     {Tensor("own", Dtype::kUint8, {3}), index.chunks.size(), 1}};
    ChunkRecord own;
    own.raw_bytes = own.stored_bytes = 3;
    own.offset = kShardBlockBytes;
    own.checksum = ChecksumOf(AsBytes("own"));
    own.digest = DigestOf(AsBytes("own"));
    index.chunks.push_back(own);
    stored_ = index.chunks[0];
    WriteWhole(path_, BuildShard({TestIdentity(1001), 65536}, "own", index));
  }

  absl::Status Read() {
    auto reader = ShardReader::Open(PosixFileSystem(), path_, directory_.path());
    if (!reader.ok()) return reader.status();
    EXPECT_EQ((*reader)->ReusedBytes(0), (*reader)->StoredBytes(0));
    EXPECT_EQ((*reader)->ReusedBytes(1), 0u);
    std::vector<std::byte> w(200000);
    std::vector<std::byte> own(3);
    const EntryRead reads[] = {{0, w}, {1, own}};
    if (auto status = (*reader)->Read(reads, {.codec_threads = 2}); !status.ok()) return status;
    EXPECT_EQ(w, weights_);
    EXPECT_EQ(own[0], std::byte{'o'});
    return (*reader)->Read(reads, {});  // with the other file already open
  }
  void ReplaceFirst(const std::function<void(std::string*)>& change) {
    std::string bytes = ReadWhole(first_path_);
    change(&bytes);
    WriteWhole(first_path_, bytes);
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "second.tmk";
  std::string first_path_;
  std::vector<std::byte> weights_;
  ChunkRecord stored_;  // the first that is reused
};

TEST_F(ReferenceTest, ReadsChunksWhereTheyAlreadyLie) { EXPECT_THAT(Read(), IsOk()); }

TEST_F(ReferenceTest, SaysThatTheOtherShardIsGone) {
  std::filesystem::remove(first_path_);
  EXPECT_THAT(Read(), StatusIs(StatusCode::kNotFound,
                               AllOf(HasSubstr("read " + path_ + ": entry 'w', chunk 0"), HasSubstr(first_path_))));
}

TEST_F(ReferenceTest, RefusesAnotherShardInItsPlace) {
  const auto put = [&](ShardIdentity identity) {
    ReplaceFirst([&](std::string* bytes) { bytes->replace(0, 4096, EncodeShardHeader({identity, 65536})); });
    return Read();
  };
  ShardIdentity identity = TestIdentity(1000);
  identity.sequence = 7;  // not named by a reference
  EXPECT_THAT(put(identity), IsOk());
  identity.step = 999;
  EXPECT_THAT(put(identity), StatusIs(StatusCode::kDataLoss,
                                      AllOf(HasSubstr(first_path_ + ": shard header: expected store "),
                                            HasSubstr("step 1000"), HasSubstr("found store"), HasSubstr("step 999"))));
  identity = TestIdentity(1000);
  identity.attempt.bytes[0] ^= 1;
  EXPECT_THAT(put(identity), StatusIs(StatusCode::kDataLoss, HasSubstr("attempt e9")));
  identity = TestIdentity(1000);
  identity.store.bytes[0] ^= 1;
  EXPECT_THAT(put(identity), StatusIs(StatusCode::kDataLoss, HasSubstr("found store a1")));
  identity = TestIdentity(1000);
  identity.world_size = 2;
  identity.rank = 1;
  EXPECT_THAT(put(identity), StatusIs(StatusCode::kDataLoss, HasSubstr("rank 1 of 2")));
}

TEST_F(ReferenceTest, RefusesDamageInTheOtherShard) {
  ReplaceFirst([&](std::string* bytes) { (*bytes)[stored_.offset] ^= 1; });
  EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("entry 'w', chunk 0"), HasSubstr(first_path_),
                                                            HasSubstr("checksum of the stored bytes"))));
}

TEST_F(ReferenceTest, RefusesAnOtherShardThatIsCutShort) {
  for (uint64_t size : {uint64_t{0}, uint64_t{100}, AlignUp(stored_.offset) + 8192, uint64_t{12289}}) {
    std::filesystem::resize_file(first_path_, size);
    EXPECT_THAT(Read(), StatusIs(StatusCode::kDataLoss, HasSubstr(first_path_))) << size;
  }
}

}  // namespace
}  // namespace tidemark::storage
