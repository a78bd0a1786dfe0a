#include "snapshot/restore/destination_plan.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/restore/saved_entries.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// A shard whose tensors are windows of one array, and the same windows of another array to restore them to.
class DestinationPlanTest : public testing::Test {
 protected:
  static constexpr size_t kArenaBytes = 300'000;

  DestinationPlanTest() : source_(storage::RandomBytes(kArenaBytes, random_)), arena_(kArenaBytes, std::byte{0x5a}) {}

  void Add(size_t begin, size_t size) {
    const auto from = source_.begin() + static_cast<ptrdiff_t>(begin);
    tensors_.emplace_back(from, from + static_cast<ptrdiff_t>(size));
    begins_.push_back(begin);
  }
  // Of what was added.
  absl::StatusOr<std::vector<DestinationRead>> Plan(uint64_t bounce_bytes_max = 1 << 20) {
    storage::TestContents contents;
    destinations_.clear();
    names_.clear();
    for (size_t i = 0; i < tensors_.size(); ++i) names_.push_back("t" + std::to_string(i));
    for (size_t i = 0; i < tensors_.size(); ++i) {
      contents.Add(storage::Tensor(names_[i], Dtype::kUint8, {static_cast<int64_t>(tensors_[i].size())}), tensors_[i]);
      destinations_.push_back(
          {.saved = i, .memory = std::span(arena_).subspan(begins_[i], tensors_[i].size()), .name = names_[i]});
    }
    const std::string path = directory_ / ("shard" + std::to_string(++shards_));
    storage::WriteShard(path, storage::TestIdentity(), *contents, {.chunk_bytes = storage::kTestChunkBytes});
    auto reader = storage::ShardReader::Open(files_, path, directory_.path());
    EXPECT_THAT(reader, IsOk());
    storage::Attempt attempt;
    attempt.shards.push_back(*std::move(reader));
    entries_ = EntriesOf(std::move(attempt), {.codec_threads = 2});
    files_.Reset();
    return PlanDestinations(*entries_, destinations_, bounce_bytes_max);
  }
  void ExpectReadsWriteEveryByteOnce(const std::vector<DestinationRead>& planned) {
    std::vector<storage::EntryRead> reads;
    std::vector<int> written(kArenaBytes);
    std::vector<int> wanted(kArenaBytes);
    for (const DestinationRead& read : planned) {
      reads.push_back(read.read);
      EXPECT_EQ(read.read.entry, destinations_[read.destination].saved);
      const size_t begin = read.read.destination.data() - arena_.data();
      for (size_t i = 0; i < read.read.destination.size(); ++i) ++written[begin + i];
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      std::fill_n(wanted.begin() + static_cast<ptrdiff_t>(begins_[i]), tensors_[i].size(), 1);
    }
    EXPECT_EQ(written, wanted);
    EXPECT_EQ(std::count(arena_.begin(), arena_.end(), std::byte{0x5a}), kArenaBytes) << "planning wrote";
    ASSERT_THAT(entries_->Read(reads, nullptr), IsOk());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      EXPECT_TRUE(std::equal(tensors_[i].begin(), tensors_[i].end(), destinations_[i].memory.begin())) << i;
    }
  }

  storage::TestDirectory directory_;
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  std::mt19937_64 random_{1};
  std::vector<std::byte> source_;
  std::vector<std::vector<std::byte>> tensors_;
  std::vector<size_t> begins_;
  std::vector<std::byte> arena_;
  std::vector<std::string> names_;
  std::vector<Destination> destinations_;
  std::unique_ptr<SavedEntries> entries_;
  int shards_ = 0;
};

TEST_F(DestinationPlanTest, ReadsNothingAheadWhereNoMemoryIsSharedInPart) {
  Add(100'000, 70'000);
  Add(0, 100'000);
  Add(50, 0);
  Add(100'000, 70'000);
  Add(170'000, 1);
  const auto planned = Plan();
  ASSERT_THAT(planned, IsOk());
  EXPECT_THAT(files_.operations(), testing::IsEmpty());
  EXPECT_EQ(planned->size(), 3u);
  for (const DestinationRead& read : *planned) EXPECT_FALSE(read.read.begin.has_value()) << "a whole tensor";
  ExpectReadsWriteEveryByteOnce(*planned);
}

TEST_F(DestinationPlanTest, PlansAnyArrangementAndFindsAnyDifference) {
  const uint32_t seed = storage::SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  random_.seed(seed);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    tensors_.clear();
    begins_.clear();
    std::fill(arena_.begin(), arena_.end(), std::byte{0x5a});
    // Without the byte that stands for untouched memory.
    for (std::byte& byte : source_) byte = static_cast<std::byte>(random_() % 80);
    for (size_t count = 2 + random_() % 15; count > 0; --count) {
      const size_t begin = random_() % 1000 * 290;
      Add(begin, std::min<size_t>(kArenaBytes - begin, random_() % 2 == 0 ? 2900 : random_() % 150'000));
    }
    const uint64_t bounce = uint64_t{2} << (random_() % 20);
    // A window of two bytes takes a read for each.
    const auto planned = Plan(std::max<uint64_t>(bounce, 4096));
    ASSERT_THAT(planned, IsOk());
    ExpectReadsWriteEveryByteOnce(*planned);

    const size_t spoiled = random_() % tensors_.size();
    if (tensors_[spoiled].empty()) continue;
    const size_t offset = random_() % tensors_[spoiled].size();
    tensors_[spoiled][offset] ^= std::byte{0x80};
    bool is_shared = false;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const size_t at = begins_[spoiled] + offset;
      is_shared = is_shared || (i != spoiled && at >= begins_[i] && at < begins_[i] + tensors_[i].size());
    }
    std::fill(arena_.begin(), arena_.end(), std::byte{0x5a});
    const auto again = Plan(std::max<uint64_t>(bounce, 4096));
    if (!is_shared) {
      ASSERT_THAT(again, IsOk());
    } else {
      EXPECT_THAT(again, StatusIs(absl::StatusCode::kInvalidArgument,
                                  AllOf(HasSubstr("'" + names_[spoiled] + "'"), HasSubstr("share memory"))));
    }
  }
}

TEST_F(DestinationPlanTest, NamesTheTwoThatDifferWhereverThatIs) {
  Add(0, 100'000);
  Add(90'000, 100'000);
  Add(50'000, 130'000);  // over both
  for (const size_t offset : {size_t{0}, size_t{49'999}, size_t{50'000}, size_t{129'999}}) {
    SCOPED_TRACE(offset);
    tensors_[2][offset] ^= std::byte{1};
    // By address: the third has what the first leaves of it, and the second comes last.
    const std::string pair = offset < 50'000 ? "'t0' and 't2' share" : "'t2' and 't1' share";
    EXPECT_THAT(Plan(30'000), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(pair)));
    tensors_[2][offset] ^= std::byte{1};
  }
  EXPECT_THAT(Plan(30'000), IsOk());
}

TEST_F(DestinationPlanTest, ReturnsTheErrorOfReadingWhatIsShared) {
  Add(0, 100'000);
  Add(50'000, 100'000);
  ASSERT_THAT(Plan(), IsOk());
  files_.FailOperation("QueueRead", absl::InternalError("injected"));
  EXPECT_THAT(PlanDestinations(*entries_, destinations_, 1 << 20),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("injected")));
}

}  // namespace
}  // namespace tidemark
