#include "storage/shard/shard_writer.h"

#include <random>

#include "gtest/gtest.h"
#include "storage/shard/shard_verify.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* name;
  IoQueueKind io;
  CodecPolicy policy;
  int threads;
  uint32_t chunk_bytes;
};

class ShardWriterTest : public ::testing::TestWithParam<Case> {
 protected:
  ShardWriterOptions options() const {
    return {.policy = GetParam().policy,
            .chunk_bytes = GetParam().chunk_bytes,
            .codec_threads = GetParam().threads,
            .io = GetParam().io};
  }
  // Containers often forbid io_uring; the threads are tested everywhere.
  void SetUp() override {
    if (GetParam().io == IoQueueKind::kUring && !PosixFileSystem().NewIoQueue(IoQueueKind::kUring, 1).ok()) {
      GTEST_SKIP() << "no io_uring here";
    }
  }
  TestDirectory directory_;
};

TEST_P(ShardWriterTest, WritesWhatTheReaderReadsBack) {
  std::mt19937_64 random(1);
  TestContents contents = MixedContents(GetParam().chunk_bytes, random);
  const WrittenShard written = WriteShard(directory_ / "a.tmk", TestIdentity(), *contents, options());
  auto reader = ShardReader::Open(PosixFileSystem(), directory_ / "a.tmk", directory_.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->header().identity, TestIdentity());
  EXPECT_EQ((*reader)->header().chunk_bytes, GetParam().chunk_bytes);
  EXPECT_EQ((*reader)->footer().index_digest, written.footer.index_digest);
  const ShardIndex& index = (*reader)->index();
  EXPECT_EQ(index.created_unix_ns, contents->created_unix_ns);
  EXPECT_EQ(index.blocked_ns, contents->blocked_ns);
  EXPECT_EQ(index.metrics, contents->metrics);
  EXPECT_EQ(index.user_metadata, contents->user_metadata);
  EXPECT_EQ(index.properties, written.properties);
  EXPECT_EQ(index.properties.at("compression"), GetParam().policy == CodecPolicy::kSpace ? "space" : "none");
  ExpectReadsBack(**reader, contents, {.codec_threads = GetParam().threads, .io = GetParam().io});

  auto verified = VerifyShard(PosixFileSystem(), directory_ / "a.tmk", directory_.path(), nullptr, {});
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->damage.empty()) << verified->damage[0].what;
  EXPECT_EQ(verified->bytes_read, written.footer.file_bytes);
  EXPECT_EQ(verified->chunks, index.chunks.size());
}

INSTANTIATE_TEST_SUITE_P(Ways, ShardWriterTest,
                         ::testing::Values(Case{"Uring", IoQueueKind::kUring, CodecPolicy::kSpace, 2, 256 << 10},
                                           Case{"UringRaw", IoQueueKind::kUring, CodecPolicy::kNone, 1, 1 << 20},
                                           Case{"Threads", IoQueueKind::kThreads, CodecPolicy::kSpace, 1, 1 << 20},
                                           Case{"ThreadsRaw", IoQueueKind::kThreads, CodecPolicy::kNone, 3, 4096},
                                           Case{"SmallChunks", IoQueueKind::kAuto, CodecPolicy::kSpace, 3, 4096}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tidemark::storage
