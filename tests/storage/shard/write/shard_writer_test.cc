#include "storage/shard/write/shard_writer.h"

#include <sys/mman.h>
#include <sys/mount.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "storage/shard/read/shard_verify.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

struct Way {
  const char* name;
  IoQueueKind io;
  CodecPolicy policy;
  int threads;
  uint32_t chunk_bytes;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class ShardWriterTest : public ::testing::TestWithParam<Way> {
 protected:
  // Containers often forbid io_uring; the threads are tested everywhere.
  void SetUp() override {
    if (GetParam().io == IoQueueKind::kUring && !PosixFileSystem().NewIoQueue(IoQueueKind::kUring, 1).ok()) {
      GTEST_SKIP() << "no io_uring here";
    }
  }
  ShardWriterOptions options() const {
    return {.policy = GetParam().policy,
            .chunk_bytes = GetParam().chunk_bytes,
            .codec_threads = GetParam().threads,
            .io = GetParam().io,
            .io_depth = 4};
  }
  TestDirectory directory_;
};

TEST_P(ShardWriterTest, TellsWhenItDidWhat) {
  std::mt19937_64 random(1);
  TestContents contents = MixedContents(GetParam().chunk_bytes, random);
  const auto before = BusySpans::Now();
  const WrittenShard written = WriteShard(directory_ / "a.tmk", TestIdentity(), *contents, options());
  const auto after = BusySpans::Now();
  const WriteTimes& times = written.times;
  EXPECT_LE(before, times.begin);
  EXPECT_LE(times.begin, times.opened);
  EXPECT_LE(times.opened, times.landed);
  EXPECT_LE(times.landed, times.end);
  EXPECT_LE(times.end, after);
  uint64_t encoded_bytes = 0;
  std::vector<const BusySpans*> all = {&times.disk_waits, &times.encoder_waits};
  for (const BusySpans& thread : times.encoding) {
    all.push_back(&thread);
    for (const BusySpans::Span& span : thread.spans()) encoded_bytes += span.bytes;
  }
  EXPECT_EQ(encoded_bytes, written.logical_bytes);
  EXPECT_FALSE(times.disk_waits.spans().empty()) << "at least for the last write";
  for (const BusySpans* spans : all) {
    for (const BusySpans::Span& span : spans->spans()) {
      EXPECT_LE(times.opened, span.begin);
      EXPECT_LE(span.end, times.landed);
    }
  }
}

TEST_P(ShardWriterTest, WritesWhatTheReaderReadsBack) {
  std::mt19937_64 random(1);
  TestContents contents = MixedContents(GetParam().chunk_bytes, random);
  const std::string path = directory_ / "a.tmk";
  const WrittenShard written = WriteShard(path, TestIdentity(), *contents, options());
  auto reader = ShardReader::Open(PosixFileSystem(), path, directory_.path());
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->header().identity, TestIdentity());
  EXPECT_EQ((*reader)->header().chunk_bytes, GetParam().chunk_bytes);
  EXPECT_EQ((*reader)->footer().index_digest, written.footer.index_digest);
  EXPECT_EQ(std::filesystem::file_size(path), written.footer.file_bytes);
  const ShardIndex& index = (*reader)->index();
  EXPECT_EQ(index.created_unix_ns, contents->created_unix_ns);
  EXPECT_EQ(index.blocked_ns, contents->blocked_ns());
  EXPECT_EQ(index.metrics, contents->metrics);
  EXPECT_EQ(index.user_metadata, contents->user_metadata);
  EXPECT_EQ(index.properties, written.properties);
  EXPECT_EQ(index.properties.at("compression"), CodecPolicyName(GetParam().policy));
  EXPECT_EQ(index.properties.at("library"), "tidemark test");
  EXPECT_EQ(index.properties.count("io"), 1u);
  EXPECT_EQ(index.properties.count("direct_io"), 1u);
  EXPECT_EQ(written.entry_count, contents->entries.size());
  uint64_t logical_bytes = 0;
  for (const auto& entry : contents->entries) logical_bytes += entry.bytes.size();
  EXPECT_EQ(written.logical_bytes, logical_bytes);
  ExpectReadsBack(**reader, contents, {.codec_threads = GetParam().threads, .io = GetParam().io});
}

TEST_P(ShardWriterTest, PlacesChunksInTheOrderOfTheTable) {
  std::mt19937_64 random(2);
  TestContents contents = MixedContents(GetParam().chunk_bytes, random);
  const std::string path = directory_ / "a.tmk";
  const WrittenShard written = WriteShard(path, TestIdentity(), *contents, options());
  auto reader = ShardReader::Open(PosixFileSystem(), path, directory_.path());
  ASSERT_THAT(reader, IsOk());
  uint64_t end = kShardBlockBytes;
  for (const ChunkRecord& chunk : (*reader)->index().chunks) {
    const bool aligned = chunk.stored_bytes >= kAlignedChunkBytesMin;
    EXPECT_EQ(chunk.offset, aligned ? AlignUp(end) : end);
    end = chunk.offset + chunk.stored_bytes;
  }
  EXPECT_EQ(written.footer.index_offset, AlignUp(end));
}

TEST_P(ShardWriterTest, IsUsedAgain) {
  std::mt19937_64 random(3);
  auto writer = ShardWriter::Create(PosixFileSystem(), options());
  ASSERT_THAT(writer, IsOk());
  for (int i = 0; i < 3; ++i) {
    TestContents contents = MixedContents(GetParam().chunk_bytes, random);
    const std::string path = directory_ / std::to_string(i);
    ASSERT_THAT((*writer)->Write(path, TestIdentity(i), *contents), IsOk());
    auto reader = ShardReader::Open(PosixFileSystem(), path, directory_.path());
    ASSERT_THAT(reader, IsOk());
    ExpectReadsBack(**reader, contents);
  }
}

// Whether the kernel let memory be locked is written down, and depends on what its user has locked elsewhere.
void ExpectSameShard(const std::string& a, const std::string& b) {
  auto reader_a = ShardReader::Open(PosixFileSystem(), a, "");
  auto reader_b = ShardReader::Open(PosixFileSystem(), b, "");
  ASSERT_THAT(reader_a, IsOk());
  ASSERT_THAT(reader_b, IsOk());
  const uint64_t index_offset = (*reader_a)->footer().index_offset;
  EXPECT_EQ((*reader_b)->footer().index_offset, index_offset);
  EXPECT_TRUE(ReadWhole(a).substr(0, index_offset) == ReadWhole(b).substr(0, index_offset)) << a;
  ShardIndex index_a = (*reader_a)->index();
  ShardIndex index_b = (*reader_b)->index();
  index_a.properties.erase("io_registered");
  index_b.properties.erase("io_registered");
  EXPECT_TRUE(index_a == index_b) << a;
}

// Every call to the file system fails in turn: the error comes out, no thread stays behind, and the writer goes on.
TEST_P(ShardWriterTest, ReturnsTheErrorOfEveryCall) {
  std::mt19937_64 random(4);
  TestContents contents = MixedContents(GetParam().chunk_bytes, random);
  FailingFileSystem files(PosixFileSystem());
  const size_t threads_before = CountThreads();
  {
    auto writer = ShardWriter::Create(files, options());
    ASSERT_THAT(writer, IsOk());
    files.Reset();
    ASSERT_THAT((*writer)->Write(directory_ / "whole", TestIdentity(), *contents), IsOk());
    const size_t calls = files.calls().size();
    ASSERT_GT(calls, 6u);  // Create, Allocate, a write or more, WriteAt, Truncate, SyncData, Close
    for (size_t i = 0; i < calls; ++i) {
      SCOPED_TRACE(files.calls()[i].operation);
      const std::string path = directory_ / ("failed-" + std::to_string(i));
      files.Reset();
      if (i % 2 == 0) {
        files.FailCall(i, absl::InternalError("injected"));
      } else {
        files.FailFrom(i, absl::InternalError("injected"));
      }
      EXPECT_THAT((*writer)->Write(path, TestIdentity(), *contents), StatusIs(StatusCode::kInternal, "injected"));
      files.Reset();
      ASSERT_THAT((*writer)->Write(path + "-again", TestIdentity(), *contents), IsOk());
      if (GetParam().policy != CodecPolicy::kThroughput) {
        ExpectSameShard(path + "-again", directory_ / "whole");
      }
      std::filesystem::remove(path);
      std::filesystem::remove(path + "-again");
    }
  }
  EXPECT_LE(CountThreads(threads_before), threads_before);
}

INSTANTIATE_TEST_SUITE_P(Ways, ShardWriterTest,
                         ::testing::Values(Way{"Uring", IoQueueKind::kUring, CodecPolicy::kSpace, 2, 256 << 10},
                                           Way{"UringRaw", IoQueueKind::kUring, CodecPolicy::kNone, 1, 1 << 20},
                                           Way{"Threads", IoQueueKind::kThreads, CodecPolicy::kSpace, 1, 1 << 20},
                                           Way{"ThreadsRaw", IoQueueKind::kThreads, CodecPolicy::kNone, 3, 4096},
                                           Way{"Throughput", IoQueueKind::kAuto, CodecPolicy::kThroughput, 2, 65536},
                                           Way{"SmallChunks", IoQueueKind::kAuto, CodecPolicy::kSpace, 3, 4096}),
                         [](const auto& info) { return info.param.name; });

class ShardWriterAlone : public ::testing::Test {
 protected:
  absl::Status Write(const ShardContents& contents, const ShardIdentity& identity = TestIdentity()) {
    auto writer = ShardWriter::Create(files_, {.chunk_bytes = 65536, .io_depth = 2});
    if (!writer.ok()) return writer.status();
    return (*writer)->Write(path_, identity, contents).status();
  }
  void ExpectInvalid(const ShardContents& contents, std::string_view message) {
    EXPECT_THAT(Write(contents), StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::string(message))));
    EXPECT_FALSE(std::filesystem::exists(path_)) << "a file was made";
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "a.tmk";
  FailingFileSystem files_{PosixFileSystem()};
};

TEST_F(ShardWriterAlone, WritesAShardOfNothing) {
  ASSERT_THAT(Write({}), IsOk());
  auto reader = ShardReader::Open(PosixFileSystem(), path_, directory_.path());
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE((*reader)->index().entries.empty());
  EXPECT_THAT((*reader)->Read({}, {}), IsOk());
  EXPECT_EQ((*reader)->footer().file_bytes, 3 * kShardBlockBytes);
}

TEST_F(ShardWriterAlone, WritesThousandsOfTinyEntries) {
  std::mt19937_64 random(5);
  TestContents contents;
  for (int i = 0; i < 5000; ++i) {
    contents.Add(Tensor("step." + std::to_string(i), Dtype::kUint8, {i % 9}), RandomBytes(i % 9, random));
  }
  ASSERT_THAT(Write(*contents), IsOk());
  auto reader = ShardReader::Open(PosixFileSystem(), path_, directory_.path());
  ASSERT_THAT(reader, IsOk());
  ExpectReadsBack(**reader, contents);
}

TEST_F(ShardWriterAlone, GivesTheSameBytesWithAnyNumberOfThreads) {
  std::mt19937_64 random(6);
  TestContents contents = MixedContents(65536, random);
  const ShardWriterOptions options{.chunk_bytes = 65536, .io = IoQueueKind::kThreads};
  ShardWriterOptions more = options;
  more.codec_threads = 4;
  more.io_depth = 1;
  WriteShard(directory_ / "one", TestIdentity(), *contents, options);
  WriteShard(directory_ / "four", TestIdentity(), *contents, more);
  EXPECT_TRUE(ReadWhole(directory_ / "one") == ReadWhole(directory_ / "four"));
}

// Nothing is known of the disk yet, so it leaves no time.
TEST_F(ShardWriterAlone, CompressesUnderAutoAsLongAsTheCallerSaysSo) {
  TestContents contents;
  contents.Add(Tensor("a", Dtype::kUint8, {256 << 10}), std::vector<std::byte>(256 << 10, std::byte{7}));
  contents.Add(Tensor("b", Dtype::kUint8, {256 << 10}), std::vector<std::byte>(256 << 10, std::byte{8}));
  const ShardWriterOptions options{.policy = CodecPolicy::kAuto, .chunk_bytes = 256 << 10};
  const auto bytes = [&](const std::string& name, std::function<bool()> compress_all) {
    ShardContents asked = *contents;
    asked.compress_all = std::move(compress_all);
    return WriteShard(directory_ / name, TestIdentity(), asked, options).footer.file_bytes;
  };
  EXPECT_GT(bytes("none", nullptr), 512 << 10);
  EXPECT_GT(bytes("no", [] { return false; }), 512 << 10);
  EXPECT_LT(bytes("yes", [] { return true; }), 64 << 10);
  const uint64_t half = bytes("once", [asked = false]() mutable { return !std::exchange(asked, true); });
  EXPECT_GT(half, 256 << 10);
  EXPECT_LT(half, 320 << 10);
}

TEST_F(ShardWriterAlone, GoesOnWhereTheFileSystemCannotAllocate) {
  std::mt19937_64 random(7);
  TestContents contents = MixedContents(65536, random);
  files_.FailOperation("Allocate", absl::UnimplementedError("no fallocate"));
  ASSERT_THAT(Write(*contents), IsOk());
  auto reader = ShardReader::Open(PosixFileSystem(), path_, directory_.path());
  ASSERT_THAT(reader, IsOk());
  ExpectReadsBack(**reader, contents);
}

// The contents are zeros, which need no room once they are compressed, and noise, most of the disk.
TEST_F(ShardWriterAlone, WritesWhatFitsIntoADiskThatIsNearlyFull) {
  std::mt19937_64 random(21);
  TestContents contents;
  contents.Add(Tensor("zeros", Dtype::kUint8, {8 << 20}), std::vector<std::byte>(8 << 20));
  contents.Add(Tensor("noise", Dtype::kUint8, {3 << 20}), RandomBytes(3 << 20, random));
  const std::string outcome = InChild([&]() -> std::string {
    if (!EnterMountNamespace() || mount("none", directory_.path().c_str(), "tmpfs", 0, "size=4m") != 0) return "SKIP";
    auto writer = ShardWriter::Create(PosixFileSystem(), {.codec_threads = 2});
    if (!writer.ok()) return writer.status().ToString();
    auto first = (*writer)->Write(path_, TestIdentity(1), *contents);
    if (!first.ok()) return first.status().ToString();
    contents->reuse = first->reusable.get();
    auto second = (*writer)->Write(path_ + "-2", TestIdentity(2), *contents);
    if (!second.ok()) return "then " + second.status().ToString();
    contents->reuse = nullptr;
    return (*writer)->Write(path_ + "-3", TestIdentity(3), *contents).status().ToString();
  });
  if (outcome == "SKIP") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_THAT(outcome, ::testing::AllOf(::testing::StartsWith("RESOURCE_EXHAUSTED"), HasSubstr(path_ + "-3")));
}

TEST_F(ShardWriterAlone, SaysThatTheDiskIsFull) {
  files_.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "Allocate" ? absl::ResourceExhaustedError("allocate: no space") : absl::OkStatus();
  });
  EXPECT_THAT(Write({}), StatusIs(StatusCode::kResourceExhausted, "allocate: no space"));
}

TEST_F(ShardWriterAlone, WritesTheHeaderLastAndSyncsBeforeItCloses) {
  std::mt19937_64 random(8);
  TestContents contents = MixedContents(65536, random);
  ASSERT_THAT(Write(*contents), IsOk());
  const auto operations = files_.operations();
  EXPECT_THAT(std::vector(operations.begin(), operations.begin() + 3),
              ::testing::ElementsAre("NewIoQueue", "Create", "Allocate"));
  EXPECT_THAT(std::vector(operations.end() - 4, operations.end()),
              ::testing::ElementsAre("WriteAt", "Truncate", "SyncData", "Close"));
}

TEST_F(ShardWriterAlone, WritesOverARetiredShardAndSyncsItBeforeTheHeader) {
  std::mt19937_64 random(81);
  TestContents larger = MixedContents(1 << 20, random);
  ASSERT_THAT(Write(*larger), IsOk());
  std::filesystem::copy_file(path_, directory_ / "larger");
  TestContents contents = MixedContents(65536, random);
  WriteShard(directory_ / "fresh", TestIdentity(), *contents, {.chunk_bytes = 65536});
  files_.Reset();
  contents->recycle = true;
  ASSERT_THAT(Write(*contents), IsOk());
  ExpectSameShard(path_, directory_ / "fresh");
  const auto operations = files_.operations();
  EXPECT_THAT(operations, ::testing::Contains("OpenForRewrite"));
  EXPECT_THAT(std::vector(operations.end() - 5, operations.end()),
              ::testing::ElementsAre("SyncData", "WriteAt", "Truncate", "SyncData", "Close"));
}

TEST_F(ShardWriterAlone, ReplacesARetiredShardThatSomebodyReads) {
  std::mt19937_64 random(82);
  TestContents contents = MixedContents(65536, random);
  ASSERT_THAT(Write(*contents), IsOk());
  auto reader = PosixFileSystem().OpenForRead(path_, /*direct=*/false);
  ASSERT_THAT(reader, IsOk());
  contents->recycle = true;
  ASSERT_THAT(Write(*contents, TestIdentity(2)), IsOk());
  EXPECT_THAT(files_.operations(), ::testing::Contains("RemoveFile"));
  std::vector<std::byte> header(kShardBlockBytes);
  ASSERT_THAT((*reader)->ReadAt(0, header), IsOk());
  EXPECT_EQ(DecodeShardHeader(header)->identity, TestIdentity());
}

TEST_F(ShardWriterAlone, LeavesAFileWithoutAHeaderWhenAWriteFails) {
  std::mt19937_64 random(9);
  TestContents contents = MixedContents(1 << 20, random);
  files_.FailOperation("QueueWrite", absl::InternalError("injected"), 1);
  EXPECT_THAT(Write(*contents), StatusIs(StatusCode::kInternal, "injected"));
  EXPECT_EQ(ShardReader::Open(PosixFileSystem(), path_, directory_.path()).status().code(), StatusCode::kDataLoss);
}

TEST_F(ShardWriterAlone, StopsWhenCancelled) {
  std::mt19937_64 random(10);
  TestContents contents = MixedContents(65536, random);
  auto writer = ShardWriter::Create(PosixFileSystem(), {.chunk_bytes = 65536});
  ASSERT_THAT(writer, IsOk());
  int asked = 0;
  EXPECT_THAT((*writer)->Write(path_, TestIdentity(), *contents, [&] { return ++asked == 3; }),
              StatusIs(StatusCode::kCancelled, "writing a shard was cancelled"));
  EXPECT_EQ(asked, 3);
  EXPECT_THAT((*writer)->Write(directory_ / "b.tmk", TestIdentity(), *contents, [] { return false; }), IsOk());
}

TEST_F(ShardWriterAlone, RefusesToReplaceAFile) {
  WriteWhole(path_, "precious");
  EXPECT_THAT(Write({}), StatusIs(StatusCode::kAlreadyExists, HasSubstr(path_)));
  EXPECT_EQ(ReadWhole(path_), "precious");
}

TEST_F(ShardWriterAlone, RefusesAnEntryOfAnotherSize) {
  TestContents contents;
  contents.Add(Tensor("w", Dtype::kFloat32, {3}), std::vector<std::byte>(13));
  ExpectInvalid(*contents, "entry 'w': expected 12 bytes, found 13");
}

TEST_F(ShardWriterAlone, RefusesAnInvalidEntry) {
  TestContents contents;
  contents.Add(Tensor("w", Dtype::kFloat32, {-3}), {});
  ExpectInvalid(*contents, "entry 'w': shape [-3] has a negative extent");
}

TEST_F(ShardWriterAlone, RefusesANameTwice) {
  TestContents contents;
  contents.Add(Tensor("w", Dtype::kInt8, {0}), {});
  contents.Add(Tensor("w", Dtype::kInt8, {1}), {std::byte{1}});
  ExpectInvalid(*contents, "entry 'w': another entry has the same name");
}

EntrySpec ByteRows(const std::string& name, int64_t begin, int64_t end) {
  EntrySpec spec = Tensor(name, Dtype::kUint8, {100, 1000});
  spec.box_offset = {begin, 0};
  spec.box_extent = {end - begin, 1000};
  return spec;
}

TEST_F(ShardWriterAlone, WritesSeveralBoxesOfATensorWithVersion2) {
  std::mt19937_64 random(3);
  TestContents contents;
  contents.Add(ByteRows("w", 0, 20), RandomBytes(20'000, random));
  contents.Add(Tensor("v", Dtype::kInt8, {1}), {std::byte{1}});
  contents.Add(ByteRows("w", 20, 100), RandomBytes(80'000, random));
  ASSERT_THAT(Write(*contents), IsOk());
  auto reader = ShardReader::Open(PosixFileSystem(), path_, directory_.path());
  ASSERT_THAT(reader, IsOk());
  ExpectReadsBack(**reader, contents);
  EXPECT_TRUE((*reader)->header().repeats_names);
  EXPECT_EQ(ReadWhole(path_)[8], 2);
  const ShardIdentity identity = TestIdentity();
  const auto verified = VerifyShard(PosixFileSystem(), path_, directory_.path(), &identity, {});
  ASSERT_THAT(verified, IsOk());
  EXPECT_TRUE(verified->damage.empty());
}

TEST_F(ShardWriterAlone, RefusesBoxesOfATensorThatOverlap) {
  TestContents contents;
  contents.Add(ByteRows("w", 0, 2), std::vector<std::byte>(2000));
  contents.Add(ByteRows("w", 2, 4), std::vector<std::byte>(2000));
  contents.Add(ByteRows("w", 3, 5), std::vector<std::byte>(2000));
  ExpectInvalid(*contents, "entry 'w': its box [3:5, 0:1000] overlaps with [2:4, 0:1000] of entry 1");
}

TEST_F(ShardWriterAlone, RefusesATieToALaterEntry) {
  TestContents contents;
  contents.Tie(Tensor("tied", Dtype::kInt8, {1}), 0);
  ExpectInvalid(*contents, "entry 'tied': expected to be tied to an earlier entry, found 0");
}

TEST_F(ShardWriterAlone, RefusesATieToAnEntryOfAnotherSize) {
  TestContents contents;
  contents.Add(Tensor("w", Dtype::kInt8, {1}), {std::byte{1}});
  contents.Tie(Tensor("tied", Dtype::kInt8, {2}), 0);
  ExpectInvalid(*contents, "entry 'tied': expected 2 bytes, found 1");
}

TEST_F(ShardWriterAlone, RefusesTextsBeyondTheirCaps) { ExpectInvalid({.metrics = {{"", 1.0}}}, "metric ''"); }

// Its bytes are addresses only: nothing looks at them.
TEST_F(ShardWriterAlone, RefusesMoreChunksThanAnIndexHasRoomFor) {
  constexpr size_t kBytes = size_t{100} << 30;
  void* const memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no 100 GiB of addresses here";
  ShardContents contents;
  contents.entries.push_back({.spec = Tensor("w", Dtype::kUint8, {static_cast<int64_t>(kBytes)}),
                              .bytes = {static_cast<const std::byte*>(memory), kBytes}});
  auto writer = ShardWriter::Create(files_, {.chunk_bytes = kChunkBytesMin});
  ASSERT_THAT(writer, IsOk());
  EXPECT_THAT((*writer)->Write(path_, TestIdentity(), contents),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("shard index: expected at most 1073741824 bytes, found up to 12583")));
  EXPECT_FALSE(std::filesystem::exists(path_)) << "a file was made";
  munmap(memory, kBytes);
}

TEST_F(ShardWriterAlone, RefusesAnIdentityThatNoShardHas) {
  ShardIdentity identity = TestIdentity();
  identity.rank = 1;
  EXPECT_THAT(Write({}, identity), StatusIs(StatusCode::kInvalidArgument, HasSubstr("found step 1000, rank 1, world")));
  identity = TestIdentity(-1);
  EXPECT_THAT(Write({}, identity), StatusIs(StatusCode::kInvalidArgument, HasSubstr("found step -1")));
}

}  // namespace
}  // namespace tidemark::storage
