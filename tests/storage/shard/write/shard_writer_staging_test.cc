// ShardWriter, beginning while its contents are still being staged.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/write/shard_writer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;

// An arena that is filled from its beginning, as a thread that copies does it, and two entries in it, of which the
// first lies behind the second.
class Staging {
 public:
  explicit Staging(std::mt19937_64& random) : bytes_(RandomBytes(16 * kTestChunkBytes + 100, random)) {
    std::fill(arena_.data(), arena_.data() + arena_.size(), std::byte{0xee});
    const auto arena = std::span<const std::byte>(arena_.span());
    contents.entries = {
        {.spec = Tensor("behind", Dtype::kUint8, {8 * kTestChunkBytes + 100}),
         .bytes = arena.subspan(8 * kTestChunkBytes)},
        {.spec = Tensor("before", Dtype::kUint8, {8 * kTestChunkBytes}), .bytes = arena.first(8 * kTestChunkBytes)}};
    contents.entries[0].bytes = contents.entries[0].bytes.first(8 * kTestChunkBytes + 100);
    contents.wait_until_ready = [this](size_t entry, uint64_t end) { return WaitUntilReady(entry, end); };
  }

  // Copies up to `end` of the arena, and lets whoever waits for it go on.
  void StageUpTo(uint64_t end) {
    {
      absl::MutexLock lock(&mutex_);
      std::copy(bytes_.begin() + staged_, bytes_.begin() + end, arena_.data() + staged_);
      staged_ = end;
    }
  }
  void StageAll() { StageUpTo(bytes_.size()); }
  void Fail(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
  }
  // Memory behind the writer holds something else as soon as it is released.
  void ReuseWhatIsReleased() {
    contents.release = [this](size_t entry, uint64_t end) {
      const uint64_t place = end + (entry == 0 ? 8 * kTestChunkBytes : 0);
      EXPECT_GT(place, released_);
      std::fill(arena_.data() + released_, arena_.data() + place, std::byte{0xdd});
      released_ = place;
    };
  }
  uint64_t released() const { return released_; }
  // Until somebody waits for bytes that are not there.
  void AwaitWaiter() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Staging::SomebodyWaits));
  }
  int waiters() {
    absl::MutexLock lock(&mutex_);
    return waiters_;
  }
  std::span<const std::byte> expected(size_t entry) const {
    const auto bytes = std::span<const std::byte>(bytes_);
    return entry == 0 ? bytes.subspan(8 * kTestChunkBytes) : bytes.first(8 * kTestChunkBytes);
  }

  ShardContents contents;

 private:
  struct Wait {
    const Staging* staging;
    uint64_t end;
  };
  static bool IsOver(const Wait* wait) { return wait->staging->staged_ >= wait->end || !wait->staging->status_.ok(); }
  bool SomebodyWaits() const { return waiters_ > 0; }

  absl::Status WaitUntilReady(size_t entry, uint64_t end) {
    Wait wait{this, end + (entry == 0 ? 8 * kTestChunkBytes : 0)};
    absl::MutexLock lock(&mutex_);
    ++waiters_;
    mutex_.Await(absl::Condition(
        +[](Wait* wait) { return IsOver(wait); }, &wait));
    --waiters_;
    return status_;
  }

  const std::vector<std::byte> bytes_;
  const AlignedBuffer arena_{16 * kTestChunkBytes + 100};
  absl::Mutex mutex_;
  uint64_t staged_ = 0;
  uint64_t released_ = 0;  // the writer's thread's
  int waiters_ = 0;
  absl::Status status_;
};

class ShardWriterStaging : public ::testing::TestWithParam<CodecPolicy> {
 protected:
  void SetUp() override {
    auto writer = ShardWriter::Create(PosixFileSystem(),
                                      {.policy = GetParam(), .chunk_bytes = kTestChunkBytes, .codec_threads = 3});
    ASSERT_THAT(writer, IsOk());
    writer_ = *std::move(writer);
  }
  absl::Status Write(const ShardContents& contents, const std::function<bool()>& cancelled = nullptr) {
    return writer_->Write(path_, TestIdentity(), contents, cancelled).status();
  }
  void ExpectCommitted(const Staging& staging) {
    auto reader = ShardReader::Open(PosixFileSystem(), path_, directory_.path());
    ASSERT_THAT(reader, IsOk());
    for (const size_t entry : {0, 1}) {
      const auto expected = staging.expected(entry);
      std::vector<std::byte> bytes(expected.size());
      const EntryRead read{entry, bytes};
      ASSERT_THAT((*reader)->Read({&read, 1}, {}), IsOk());
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin()));
    }
  }

  const TestDirectory directory_;
  const std::string path_ = directory_ / "a.tmk";
  std::mt19937_64 random_{1};
  std::unique_ptr<ShardWriter> writer_;
};

TEST_P(ShardWriterStaging, WritesChunksAsTheyBecomeReady) {
  Staging staging(random_);
  std::thread stager([&] {
    for (uint64_t end = 1000; end < 16 * kTestChunkBytes; end += 100'000) {
      staging.AwaitWaiter();
      staging.StageUpTo(end);
    }
    staging.StageAll();
  });
  EXPECT_THAT(Write(staging.contents), IsOk());
  stager.join();
  ExpectCommitted(staging);
}

TEST_P(ShardWriterStaging, LooksAtNothingThatItHasReleased) {
  Staging staging(random_);
  staging.StageAll();
  staging.ReuseWhatIsReleased();
  EXPECT_THAT(Write(staging.contents), IsOk());
  EXPECT_EQ(staging.released(), 16 * kTestChunkBytes + 100);
  ExpectCommitted(staging);
}

TEST_P(ShardWriterStaging, PlacesChunksInTheOrderInWhichTheyCome) {
  Staging staging(random_);
  staging.StageAll();
  ASSERT_THAT(Write(staging.contents), IsOk());
  auto reader = ShardReader::Open(PosixFileSystem(), path_, directory_.path());
  ASSERT_THAT(reader, IsOk());
  const ShardIndex& index = (*reader)->index();
  EXPECT_EQ(index.entries[0].first_chunk, 0u);
  EXPECT_EQ(index.chunks[index.entries[1].first_chunk].offset, kShardBlockBytes);
  EXPECT_GT(index.chunks[0].offset, index.chunks.back().offset);
}

TEST_P(ShardWriterStaging, ReturnsTheErrorOfStagingWithNobodyInsideAnyMore) {
  Staging staging(random_);
  staging.StageUpTo(5 * kTestChunkBytes);
  std::thread stager([&] {
    staging.AwaitWaiter();
    staging.Fail(absl::AbortedError("a tensor is gone"));
  });
  EXPECT_THAT(Write(staging.contents), StatusIs(StatusCode::kAborted, "a tensor is gone"));
  EXPECT_EQ(staging.waiters(), 0);
  stager.join();
  EXPECT_EQ(ShardReader::Open(PosixFileSystem(), path_, directory_.path()).status().code(), StatusCode::kDataLoss);

  Staging another(random_);
  another.StageAll();
  std::filesystem::remove(path_);
  EXPECT_THAT(Write(another.contents), IsOk());
  ExpectCommitted(another);
}

TEST_P(ShardWriterStaging, EndsWhenCancelledOnceNobodyWaitsAnyMore) {
  Staging staging(random_);
  staging.StageUpTo(5 * kTestChunkBytes);
  std::atomic<bool> cancelled = false;
  std::thread stager([&] {
    staging.AwaitWaiter();
    cancelled = true;
    staging.StageAll();
  });
  const absl::Status status = Write(staging.contents, [&] { return cancelled.load(); });
  EXPECT_EQ(staging.waiters(), 0);
  stager.join();
  EXPECT_THAT(status, StatusIs(StatusCode::kCancelled, "writing a shard was cancelled"));
}

INSTANTIATE_TEST_SUITE_P(Policies, ShardWriterStaging,
                         ::testing::Values(CodecPolicy::kNone, CodecPolicy::kSpace, CodecPolicy::kThroughput),
                         [](const auto& info) { return std::string(CodecPolicyName(info.param)); });

}  // namespace
}  // namespace tidemark::storage
