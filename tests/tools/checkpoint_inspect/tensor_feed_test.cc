#include "tools/checkpoint_inspect/tensor_feed.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

// Bytes that say where they lie.
class FakeSource : public TensorSource {
 public:
  explicit FakeSource(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes) {
      StoredEntry entry;
      entry.spec.name = std::to_string(entries_.size());
      entry.spec.shape = {size};
      entry.bytes = static_cast<uint64_t>(size);
      entries_.push_back(entry);
    }
  }
  static std::byte ByteAt(size_t entry, uint64_t offset) { return std::byte((offset * 31 + entry) % 251); }

  const std::string& name() const override { return name_; }
  std::span<const StoredEntry> entries() const override { return entries_; }
  absl::Status Read(std::span<const StepReader::Window> windows) const override {
    for (const StepReader::Window& window : windows) {
      if (window.entry == fails_at) return absl::DataLossError("rotten");
      for (size_t i = 0; i < window.destination.size(); ++i) {
        window.destination[i] = ByteAt(window.entry, window.offset + i);
      }
      bytes_read += window.destination.size();
    }
    return absl::OkStatus();
  }
  uint64_t chunk_bytes() const override { return 1; }

  mutable uint64_t bytes_read = 0;
  size_t fails_at = SIZE_MAX;

 private:
  const std::string name_ = "fake";
  std::vector<StoredEntry> entries_;
};

bool IsRight(size_t entry, std::span<const std::byte> bytes, uint64_t begin = 0) {
  for (size_t i = begin; i < bytes.size(); ++i) {
    if (bytes[i] != FakeSource::ByteAt(entry, i)) return false;
  }
  return true;
}

size_t ResidentPages(std::span<const std::byte> bytes) {
  std::vector<unsigned char> pages((bytes.size() + 4095) / 4096);
  EXPECT_EQ(mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data()), 0);
  return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

TEST(TensorFeed, ReadsWhatIsAskedForAndNoMore) {
  FakeSource first({10'000, 0});
  FakeSource second({5});
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
  FakeSource source({kBytes, kBytes});
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

TEST(TensorFeed, AnErrorOfReadingIsTheWriters) {
  FakeSource source({10, 10});
  source.fails_at = 1;
  const auto feed = TensorFeed::Create({&source});
  ASSERT_TRUE(feed.ok()) << feed.status();
  storage::ShardContents contents;
  (*feed)->Attach(&contents);
  EXPECT_TRUE(contents.wait_until_ready(0, 10).ok());
  EXPECT_EQ(contents.wait_until_ready(1, 10), absl::DataLossError("rotten"));
}

TEST(TensorFeed, ManyMoreBytesThanThereIsMemoryTakeAddressesAlone) {
  FakeSource source({int64_t{1} << 38, 5});
  const auto feed = TensorFeed::Create({&source});
  ASSERT_TRUE(feed.ok()) << feed.status();
  storage::ShardContents contents;
  (*feed)->Attach(&contents);
  ASSERT_TRUE(contents.wait_until_ready(0, 100).ok());
  EXPECT_TRUE(IsRight(0, contents.entries[0].bytes.first(100)));
  FakeSource beyond({int64_t{1} << 62});
  EXPECT_TRUE(absl::IsResourceExhausted(TensorFeed::Create({&beyond}).status()));
}

}  // namespace
}  // namespace tidemark::inspect
