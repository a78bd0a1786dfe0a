// ShardWriter and ShardReader where the system has no memory: of the buffers and contexts that a save and a restore
// allocate, in C and in C++, each in turn is refused. They say kResourceExhausted or do without, the process lives, and
// no thread is left. Smaller allocations are not refused: Abseil's hash tables, which have few entries here, are not
// made for that.
//
// A program by itself, since it replaces malloc in the whole of it.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/shard/read/shard_verify.h"
#include "storage/shard/write/shard_writer.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace {

// Which allocations are refused.
struct Refusal {
  std::atomic<bool> on = false;
  std::atomic<size_t> bytes_min = 0;    // of smaller ones there are always enough
  std::atomic<int64_t> first = 0;       // the number of the first that is refused
  std::atomic<bool> and_later = false;  // and so are all after it
  std::atomic<int64_t> asked = 0;       // so many that are large enough

  bool Refuses(size_t bytes) {
    if (!on || bytes < bytes_min) return false;
    const int64_t number = asked++;
    return and_later ? number >= first : number == first;
  }
};

constinit Refusal refusal;

}  // namespace

// Sanitizers have a malloc of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !__has_feature(address_sanitizer) && \
    !__has_feature(thread_sanitizer)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  if (!refusal.Refuses(bytes)) return __libc_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}
void* calloc(size_t count, size_t bytes) {
  if (!refusal.Refuses(count * bytes)) return __libc_calloc(count, bytes);
  errno = ENOMEM;
  return nullptr;
}
void* realloc(void* memory, size_t bytes) {
  if (!refusal.Refuses(bytes)) return __libc_realloc(memory, bytes);
  errno = ENOMEM;
  return nullptr;
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  if (!refusal.Refuses(bytes)) return __libc_memalign(alignment, bytes);
  errno = ENOMEM;
  return nullptr;
}
}
#endif

namespace tidemark::storage {
namespace {

using testing::AnyOf;

constexpr size_t kBytesMin = 2048;

struct Kind {
  const char* name;
  CodecPolicy policy;
  IoQueueKind io;
  bool and_later;
};

class MemoryFaultsTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "sanitizers have a malloc of their own";
    PosixFileSystem();  // made at its first use
    threads_ = CountThreads();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_LE(CountThreads(threads_), threads_);
  }

  // Runs `work` again and again, each time with another allocation refused, until it asks for none that is. `then` is
  // run after each, with all the memory that it wants.
  void Sweep(const std::function<absl::Status()>& work, const std::function<void()>& then) {
    int64_t refused = 0;
    for (int64_t first = 0;; ++first) {
      SCOPED_TRACE(testing::Message() << "refused: number " << first);
      refusal.bytes_min = kBytesMin;
      refusal.and_later = GetParam().and_later;
      refusal.first = first;
      refusal.asked = 0;
      refusal.on = true;
      absl::Status status = work();
      refusal.on = false;
      ASSERT_THAT(status, AnyOf(IsOk(), StatusIs(absl::StatusCode::kResourceExhausted, testing::_)));
      if (refusal.asked <= first) {
        EXPECT_THAT(status, IsOk()) << "nothing was refused";
        std::printf("%d of %d refusals became an error\n", static_cast<int>(refused), static_cast<int>(first));
        break;
      }
      if (!status.ok()) ++refused;
      ASSERT_NO_FATAL_FAILURE(then());
    }
    EXPECT_GT(refused, 0);
  }

  ShardWriterOptions WriterOptions() const {
    return {.policy = GetParam().policy,
            .chunk_bytes = kTestChunkBytes,
            .codec_threads = 2,
            .io = GetParam().io,
            .io_depth = 3};
  }
  ShardReadOptions ReadOptions() const { return {.codec_threads = 2, .io = GetParam().io, .io_depth = 3}; }

  void ExpectSound(const std::string& path) {
    auto reader = ShardReader::Open(PosixFileSystem(), path, directory_.path());
    ASSERT_THAT(reader, IsOk());
    ExpectReadsBack(**reader, contents_, ReadOptions());
  }

  size_t threads_ = 0;
  TestDirectory directory_ = TestDirectory::InMemory();
  const std::string path_ = directory_ / "a.tmk";
  std::mt19937_64 random_{1};
  TestContents contents_ = MixedContents(kTestChunkBytes, random_);
};

TEST_P(MemoryFaultsTest, ASaveSucceedsOrSaysSoAndTheWriterGoesOn) {
  std::unique_ptr<ShardWriter> writer;
  Sweep(
      [&] {
        writer.reset();
        auto made = ShardWriter::Create(PosixFileSystem(), WriterOptions());
        if (!made.ok()) return made.status();
        writer = *std::move(made);
        return writer->Write(path_, TestIdentity(), *contents_).status();
      },
      [&] {
        std::filesystem::remove(path_);
        if (writer == nullptr) return;
        ASSERT_THAT(writer->Write(path_, TestIdentity(), *contents_), IsOk());
        ExpectSound(path_);
        std::filesystem::remove(path_);
      });
}

TEST_P(MemoryFaultsTest, ARestoreSucceedsOrSaysSo) {
  WriteShard(path_, TestIdentity(), *contents_, WriterOptions());
  std::vector<std::vector<std::byte>> bytes;
  std::vector<EntryRead> reads;
  for (size_t i = 0; i < contents_->entries.size(); ++i) bytes.emplace_back(contents_.bytes(i).size());
  for (size_t i = 0; i < bytes.size(); ++i) reads.push_back({i, bytes[i]});
  Sweep(
      [&] {
        auto reader = ShardReader::Open(PosixFileSystem(), path_, directory_.path());
        if (!reader.ok()) return reader.status();
        return (*reader)->Read(reads, ReadOptions());
      },
      [] {});
  ExpectSound(path_);
}

TEST_P(MemoryFaultsTest, AVerificationSucceedsOrSaysSo) {
  WriteShard(path_, TestIdentity(), *contents_, WriterOptions());
  Sweep(
      [&] {
        const auto verified = VerifyShard(PosixFileSystem(), path_, directory_.path(), nullptr, ReadOptions());
        if (verified.ok()) {
          EXPECT_THAT(verified->damage, testing::IsEmpty());
        }
        return verified.status();
      },
      [] {});
}

// One allocation; or all from one on, as where the address space is used up.
INSTANTIATE_TEST_SUITE_P(, MemoryFaultsTest,
                         testing::Values(Kind{"OneBySpace", CodecPolicy::kSpace, IoQueueKind::kAuto, false},
                                         Kind{"OneByNone", CodecPolicy::kNone, IoQueueKind::kThreads, false},
                                         Kind{"OneByThroughput", CodecPolicy::kThroughput, IoQueueKind::kThreads,
                                              false},
                                         Kind{"AllBySpace", CodecPolicy::kSpace, IoQueueKind::kThreads, true},
                                         Kind{"AllByNone", CodecPolicy::kNone, IoQueueKind::kAuto, true}),
                         [](const testing::TestParamInfo<Kind>& info) { return info.param.name; });

}  // namespace
}  // namespace tidemark::storage
