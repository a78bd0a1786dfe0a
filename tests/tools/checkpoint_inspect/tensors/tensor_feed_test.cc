#include "tools/checkpoint_inspect/tensors/tensor_feed.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/fake_tensor_source.h"

namespace tidemark::inspect {
namespace {

bool IsRight(size_t entry, std::span<const std::byte> bytes, uint64_t begin = 0) {
  for (size_t i = begin; i < bytes.size(); ++i) {
    if (bytes[i] != PatternTensorSource::ByteAt(entry, i)) return false;
  }
  return true;
}

size_t ResidentPages(std::span<const std::byte> bytes) {
  std::vector<unsigned char> pages((bytes.size() + 4095) / 4096);
  EXPECT_EQ(mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data()), 0);
  return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

TEST(TensorFeed, ReadsWhatIsAskedForAndNoMore) {
  PatternTensorSource first({{Dtype::kUint8, 10'000}, {Dtype::kUint8, 0}});
  PatternTensorSource second({{Dtype::kUint8, 5}});
  const auto feed = TensorFeed::Create({&first, &second});
  ASSERT_TRUE(feed.ok()) << feed.status();
  EXPECT_EQ((*feed)->bytes_total(), 10'005u);
  storage::ShardContents contents;
  (*feed)->Attach(&contents);
  ASSERT_EQ(contents.entries.size(), 3u);
  ASSERT_TRUE(contents.wait_until_ready(0, 4096).ok());
  EXPECT_EQ(first.bytes_read, 4096u);
  EXPECT_TRUE(IsRight(0, contents.entries[0].bytes.first(4096)));
  // One that comes before the others is read with all before it, and these not again.
  ASSERT_TRUE(contents.wait_until_ready(2, 5).ok());
  ASSERT_TRUE(contents.wait_until_ready(0, 10'000).ok());
  EXPECT_EQ(first.bytes_read, 10'000u);
  EXPECT_EQ(second.bytes_read, 5u);
  EXPECT_EQ((*feed)->bytes_read(), 10'005u);
  EXPECT_TRUE(IsRight(0, contents.entries[0].bytes));
  EXPECT_TRUE(IsRight(0, contents.entries[2].bytes));
}

TEST(TensorFeed, GivesBackTheMemoryOfWhatIsReleased) {
  constexpr int64_t kBytes = 64 * 4096;
  PatternTensorSource source({{Dtype::kUint8, kBytes}, {Dtype::kUint8, kBytes}});
  const auto feed = TensorFeed::Create({&source});
  ASSERT_TRUE(feed.ok()) << feed.status();
  storage::ShardContents contents;
  (*feed)->Attach(&contents);
  ASSERT_TRUE(contents.wait_until_ready(1, kBytes).ok());
  EXPECT_EQ(ResidentPages(contents.entries[0].bytes), 64u);
  contents.release(0, 32 * 4096 + 5);
  EXPECT_EQ(ResidentPages(contents.entries[0].bytes), 32u);
  EXPECT_TRUE(IsRight(0, contents.entries[0].bytes, 32 * 4096));
  contents.release(1, 4096);
  EXPECT_EQ(ResidentPages(contents.entries[0].bytes), 0u);
  EXPECT_EQ(ResidentPages(contents.entries[1].bytes), 63u);
}

TEST(TensorFeed, SmallTensorsShareAPageThatStaysAsLongAsOneOfThemDoes) {
  constexpr size_t kTensors = 200;
  PatternTensorSource source(std::vector<std::pair<Dtype, int64_t>>(kTensors, {Dtype::kUint8, 5}));
  const auto feed = TensorFeed::Create({&source});
  ASSERT_TRUE(feed.ok()) << feed.status();
  storage::ShardContents contents;
  (*feed)->Attach(&contents);
  ASSERT_TRUE(contents.wait_until_ready(kTensors - 1, 5).ok());
  EXPECT_LE(contents.entries.back().bytes.data() - contents.entries[0].bytes.data(), 4 * 4096);
  contents.release(99, 5);
  for (size_t i = 100; i < kTensors; ++i) EXPECT_TRUE(IsRight(i, contents.entries[i].bytes)) << i;
}

TEST(TensorFeed, AnErrorOfReadingIsTheWriters) {
  PatternTensorSource source({{Dtype::kUint8, 10}, {Dtype::kUint8, 10}});
  source.fails_at = 1;
  const auto feed = TensorFeed::Create({&source});
  ASSERT_TRUE(feed.ok()) << feed.status();
  storage::ShardContents contents;
  (*feed)->Attach(&contents);
  EXPECT_TRUE(contents.wait_until_ready(0, 10).ok());
  EXPECT_EQ(contents.wait_until_ready(1, 10), absl::DataLossError("rotten"));
}

TEST(TensorFeed, ManyMoreBytesThanThereIsMemoryTakeAddressesAlone) {
  PatternTensorSource source({{Dtype::kUint8, int64_t{1} << 38}, {Dtype::kUint8, 5}});
  const auto feed = TensorFeed::Create({&source});
  ASSERT_TRUE(feed.ok()) << feed.status();
  storage::ShardContents contents;
  (*feed)->Attach(&contents);
  ASSERT_TRUE(contents.wait_until_ready(0, 100).ok());
  EXPECT_TRUE(IsRight(0, contents.entries[0].bytes.first(100)));
  PatternTensorSource beyond({{Dtype::kUint8, int64_t{1} << 62}});
  EXPECT_TRUE(absl::IsResourceExhausted(TensorFeed::Create({&beyond}).status()));
}

}  // namespace
}  // namespace tidemark::inspect
