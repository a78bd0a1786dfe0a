// A job that has split a matrix in one way, and goes on with another number of ranks or another split. A box of columns
// is stored in tiles (storage/shard/write/tiles.h).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/layouts.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kRows = 600;
constexpr int64_t kColumns = 2400;
constexpr uint64_t kMatrixBytes = kRows * kColumns * sizeof(float);

enum class Split { kColumns, kRows, kBoth, kWhole };

// A rank's part of "matrix", float32 [kRows, kColumns], whose elements are their numbers and a seed.
struct Part {
  // kBoth: half of the rows, so `world_size` is even.
  Part(Split split, int32_t rank, int32_t world_size) {
    const int32_t halves = split == Split::kBoth ? 2 : 1;
    ShardRange rows{0, kRows};
    ShardRange columns{0, kColumns};
    if (split == Split::kRows) rows = SplitEvenly(kRows, rank, world_size);
    if (split == Split::kBoth) rows = SplitEvenly(kRows, rank % halves, halves);
    if (split == Split::kColumns || split == Split::kBoth) {
      columns = SplitEvenly(kColumns, rank / halves, world_size / halves);
    }
    offset = {rows.first, columns.first};
    extent = {rows.count, columns.count};
    elements.resize(static_cast<size_t>(rows.count * columns.count), -1.0f);
    if (split == Split::kWhole) {
      state.AddTensor("matrix", Dtype::kFloat32, {kRows, kColumns}, elements.data());
    } else {
      state.AddBox("matrix", Dtype::kFloat32, {kRows, kColumns}, offset, extent, elements.data());
    }
    state.AddValue("rank", &number);
  }
  void Fill(int64_t seed) {
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = Expected(i, seed);
  }
  bool IsFilled(int64_t seed) const {
    for (size_t i = 0; i < elements.size(); ++i) {
      if (elements[i] != Expected(i, seed)) return false;
    }
    return true;
  }
  float Expected(size_t i, int64_t seed) const {
    const auto place = static_cast<int64_t>(i);
    return static_cast<float>(seed + (offset[0] + place / extent[1]) * kColumns + offset[1] + place % extent[1]);
  }

  std::vector<int64_t> offset;
  std::vector<int64_t> extent;
  std::vector<float> elements;
  int64_t number = -1;
  State state;
};

class TiledBoxesTest : public TrainerRanksTest {
 protected:
  static void Open(TrainerRanks& job, Compression compression) {
    job.ChangeOptions([compression](int32_t, CheckpointerOptions& options) {
      options.compression = compression;
      options.tuning.chunk_bytes = 64 << 10;
    });
    ASSERT_THAT(job.Open(), Each(IsOk()));
  }
  void Save(Split split, int32_t world_size, int64_t step = 10, Compression compression = Compression::kNone) {
    TrainerRanks job(store_, world_size);
    Open(job, compression);
    EXPECT_THAT(OnEachRank(world_size,
                           [&](int32_t rank) {
                             Part part(split, rank, world_size);
                             part.Fill(step);
                             part.number = rank;
                             auto save = job.rank_at(rank).Save(step, part.state);
                             return save.ok() ? save->committed().Wait() : save.status();
                           }),
                Each(IsOk()));
    EXPECT_THAT(job.Close(), Each(IsOk()));
    EXPECT_THAT(job.warnings(), IsEmpty());
  }
  // What the ranks read of shards, in matrices. `is_same_job`: each finds the number that it saved.
  double Restore(Split split, int32_t world_size, bool is_same_job = false, int64_t step = 10) {
    TrainerRanks job(store_, world_size);
    Open(job, Compression::kNone);
    for (int32_t rank = 0; rank < world_size; ++rank) job.files(rank).Reset();
    EXPECT_THAT(OnEachRank(world_size,
                           [&](int32_t rank) {
                             Part part(split, rank, world_size);
                             const absl::Status status = job.rank_at(rank).RestoreLatest(part.state).status();
                             EXPECT_TRUE(part.IsFilled(step)) << rank;
                             EXPECT_EQ(part.number, is_same_job ? rank : 0);
                             return status;
                           }),
                Each(IsOk()));
    uint64_t read = 0;
    for (int32_t rank = 0; rank < world_size; ++rank) {
      for (const auto& call : job.files(rank).calls()) {
        const bool is_read = absl::StrContains(call.operation, "Read") && !absl::StartsWith(call.operation, "Open");
        if (is_read && absl::StrContains(call.path, "/shard-")) read += call.bytes;
      }
    }
    return static_cast<double>(read) / kMatrixBytes;
  }
  std::vector<StoredEntry> EntriesOf(int64_t step) {
    auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    auto opened = (*reader)->OpenStep(step);
    EXPECT_THAT(opened, IsOk());
    return (*opened)->contents().entries;
  }
};

TEST_F(TiledBoxesTest, ColumnsAreStoredInFourTilesForEachRank) {
  Save(Split::kColumns, 3);
  const std::vector<StoredEntry> entries = EntriesOf(10);
  ASSERT_THAT(entries, SizeIs(3 * 5)) << "with a number";
  EXPECT_EQ(entries[6].rank, 1u);
  EXPECT_THAT(entries[6].spec.box_offset, ElementsAre(0, 1000));
  EXPECT_THAT(entries[6].spec.box_extent, ElementsAre(kRows, 200));
}

TEST_F(TiledBoxesTest, RowsAreStoredAsTheyAre) {
  Save(Split::kRows, 3);
  EXPECT_THAT(EntriesOf(10), SizeIs(3 * 2));
}

class ResplitTest : public TiledBoxesTest, public testing::WithParamInterface<Compression> {};

TEST_P(ResplitTest, AnyNumberOfRanksRestoresAnySplit) {
  int64_t step = 0;
  for (const Split saved : {Split::kColumns, Split::kRows, Split::kBoth}) {
    Save(saved, 4, ++step, GetParam());
    for (const Split wanted : {Split::kColumns, Split::kRows, Split::kBoth, Split::kWhole}) {
      for (const int32_t world_size : {1, 2, 3, 4, 6}) {
        if (wanted == Split::kBoth && world_size % 2 != 0) continue;
        SCOPED_TRACE(
            fmt::format("{} to {} on {} ranks", static_cast<int>(saved), static_cast<int>(wanted), world_size));
        Restore(wanted, world_size, /*is_same_job=*/wanted == saved && world_size == 4, step);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Compressions, ResplitTest, testing::Values(Compression::kNone, Compression::kSpace));

// W ranks have saved, and V read 1 + (V - 1) / (4 W) of the matrix at most, and what it takes to open the shards.
TEST_F(TiledBoxesTest, FewTilesAreReadTwice) {
  Save(Split::kColumns, 4);
  for (const int32_t ranks : {1, 2, 3, 5, 8}) {
    const double opening = 0.012 * ranks;
    EXPECT_LE(Restore(Split::kColumns, ranks), 1 + (ranks - 1) / 16.0 + opening) << ranks;
  }
  EXPECT_GE(Restore(Split::kColumns, 3), 1 + 2 / 16.0) << "no tile ends where the columns of a rank do";
}

// It reads its own shard alone, and each byte once.
TEST_F(TiledBoxesTest, AJobThatIsStartedAgainReadsEachByteOnce) {
  Save(Split::kColumns, 4);
  EXPECT_LE(Restore(Split::kColumns, 4, /*is_same_job=*/true), 1.02);
}

}  // namespace
}  // namespace tidemark
