// What a state of many small tensors costs in memory. All that a save and an opening allocate is counted, as if nothing
// were freed: an upper bound of the peak. The figures are bytes for each entry of one chunk, the difference between
// twice as many entries and as many, so that threads and tables of a fixed size do not count.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fuzz/allocation_count.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/shard/write/shard_writer.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

constexpr size_t kEntries = 14'000;
constexpr int64_t kFloats = 16;

struct SavedBytes {
  uint64_t first = 0;
  uint64_t second = 0;  // of a save in which a hundredth of the entries changed
  uint64_t open_whole = 0;
  uint64_t open_delta = 0;
};

uint64_t BytesOf(const std::function<void()>& work) {
  const uint64_t before = fuzz::AllocatedBytes();
  work();
  return fuzz::AllocatedBytes() - before;
}

SavedBytes Measure(size_t entries) {
  const TestDirectory directory;
  std::vector<float> numbers(entries * kFloats, 0.5F);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += static_cast<float>(i);
  ShardContents contents;
  for (size_t i = 0; i < entries; ++i) {
    contents.entries.push_back({.spec = Tensor(fmt::format("layers.{:07}.weight", i), Dtype::kFloat32, {kFloats}),
                                .bytes = std::as_bytes(std::span(numbers).subspan(i * kFloats, kFloats))});
  }
  auto writer = ShardWriter::Create(PosixFileSystem(), {.policy = CodecPolicy::kNone, .io = IoQueueKind::kThreads});
  EXPECT_THAT(writer, IsOk());
  const auto path = [&](int64_t step) {
    return directory / StepFolderName(step, TestIdentity(step).attempt) + "/" + ShardFileName(0, 1);
  };
  std::shared_ptr<const ReusableShard> last;
  ShardContents again = contents;  // made here, for a save takes it
  const auto save = [&](int64_t step, ShardContents& saved) {
    ShardIdentity identity = TestIdentity(step);
    identity.sequence = static_cast<uint64_t>(step);
    std::filesystem::create_directories(std::filesystem::path(path(step)).parent_path());
    saved.reuse = last.get();
    auto written = (*writer)->Write(path(step), identity, std::move(saved));
    ASSERT_THAT(written, IsOk());
    EXPECT_EQ(written->footer.index_is_delta, step > 1);
    last = written->reusable;
  };
  const auto open = [&](int64_t step) {
    EXPECT_THAT(ShardReader::Open(PosixFileSystem(), path(step), directory.path()), IsOk());
  };
  SavedBytes bytes;
  bytes.first = BytesOf([&] { save(1, contents); });
  for (size_t i = 0; i < entries; i += 100) numbers[i * kFloats] = -1;
  bytes.second = BytesOf([&] { save(2, again); });
  bytes.open_whole = BytesOf([&] { open(1); });
  bytes.open_delta = BytesOf([&] { open(2); });
  return bytes;
}

TEST(IndexMemory, IsBoundedForEachEntry) {
  if (kAddressSanitizer) GTEST_SKIP() << "allocations are not counted under AddressSanitizer";
  const SavedBytes once = Measure(kEntries);
  const SavedBytes twice = Measure(2 * kEntries);
  const auto per_entry = [&](uint64_t SavedBytes::*what) { return (twice.*what - once.*what) / kEntries; };
  std::printf("bytes for each entry: first save %d, second %d, opening %d, of a delta %d\n",
              static_cast<int>(per_entry(&SavedBytes::first)), static_cast<int>(per_entry(&SavedBytes::second)),
              static_cast<int>(per_entry(&SavedBytes::open_whole)),
              static_cast<int>(per_entry(&SavedBytes::open_delta)));
  EXPECT_LE(per_entry(&SavedBytes::first), 650u);
  EXPECT_LE(per_entry(&SavedBytes::second), 400u);
  EXPECT_LE(per_entry(&SavedBytes::open_whole), 350u);
  EXPECT_LE(per_entry(&SavedBytes::open_delta), per_entry(&SavedBytes::open_whole) + 50);
}

}  // namespace
}  // namespace tidemark::storage
