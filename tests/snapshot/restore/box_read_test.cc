// Tensors that several ranks have saved parts of, read in other parts.

#include "snapshot/restore/box_read.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/saved_by_ranks.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"
#include "tidemark/step_reader.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kChunkBytes = 4096;

class BoxReadTest : public testing::Test {
 protected:
  // A step whose ranks have these boxes of the tensor. These throw where they fail, which fails the test.
  void Save(const std::vector<Box>& boxes) {
    std::deque<RankContents> ranks;
    for (const Box& box : boxes) ranks.emplace_back().AddBox(tensor_, whole_, box);
    Save(ranks);
  }

  void Save(const std::deque<RankContents>& ranks) {
    {
      const auto store = storage::OpenStore(path_, &warnings_).value();
      const absl::Status saved = SaveByRanks(*store, ++step_, ranks, kChunkBytes);
      if (!saved.ok()) throw std::runtime_error(saved.ToString());
    }
    store_ = StoreReader::Open(path_).value();
    reader_ = store_->OpenStep(step_).value();
  }

  std::vector<std::byte> BytesOf(const Box& box) const {
    RankContents rank;
    rank.AddBox(tensor_, whole_, box);
    const auto bytes = rank.contents().entries.front().bytes;
    return {bytes.begin(), bytes.end()};
  }

  absl::StatusOr<std::vector<std::byte>> Read(const Box& box) const {
    std::vector<std::byte> bytes(BytesOf(box).size());
    absl::Status status = reader_->ReadBox("w", box.offset, box.extent, bytes);
    if (!status.ok()) return status;
    return bytes;
  }

  Box DrawBox() {
    Box box;
    for (const int64_t size : tensor_.shape) {
      const int64_t offset = std::uniform_int_distribution<int64_t>(0, size - 1)(random_);
      box.offset.push_back(offset);
      box.extent.push_back(std::uniform_int_distribution<int64_t>(0, size - offset)(random_));
    }
    return box;
  }

  void ExpectReadsAnyBox() {
    const auto whole = Read(WholeBox(tensor_.shape));
    ASSERT_THAT(whole, IsOk());
    EXPECT_TRUE(*whole == whole_);
    for (int i = 0; i < 40; ++i) {
      const Box box = DrawBox();
      const auto read = Read(box);
      ASSERT_THAT(read, IsOk()) << DescribeBox(box);
      ASSERT_TRUE(*read == BytesOf(box)) << DescribeBox(box);
    }
    const auto entry = store_->ReadEntry(step_, "w");
    ASSERT_THAT(entry, IsOk());
    EXPECT_TRUE(*entry == whole_);
    for (int i = 0; i < 40; ++i) {
      const uint64_t offset = std::uniform_int_distribution<uint64_t>(0, whole_.size())(random_);
      const uint64_t bytes = std::uniform_int_distribution<uint64_t>(0, whole_.size() - offset)(random_);
      const auto part = store_->ReadEntry(step_, "w", offset, bytes);
      ASSERT_THAT(part, IsOk());
      ASSERT_TRUE(std::ranges::equal(*part, std::span(whole_).subspan(offset, bytes))) << offset << " " << bytes;
    }
  }

  const uint32_t seed_ = storage::SeedOfCases();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, testing::Message() << "TIDEMARK_SEED=" << seed_};
  std::mt19937 random_{seed_};
  const storage::TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  EntrySpec tensor_{.name = "w", .dtype = Dtype::kFloat32, .shape = {96, 160}};
  std::mt19937_64 numbers_{7};
  std::vector<std::byte> whole_ = storage::Weights(Dtype::kFloat32, 96 * 160, numbers_);
  std::string warnings_;
  int64_t step_ = 0;
  std::unique_ptr<StoreReader> store_;
  std::unique_ptr<StepReader> reader_;
};

TEST_F(BoxReadTest, ReadsWhatWasSavedByRowsColumnsAndBlocks) {
  Save(std::vector<Box>{{{0, 0}, {40, 160}}, {{40, 0}, {1, 160}}, {{41, 0}, {55, 160}}});
  ExpectReadsAnyBox();
  Save(std::vector<Box>{{{0, 0}, {96, 53}}, {{0, 53}, {96, 53}}, {{0, 106}, {96, 54}}});
  ExpectReadsAnyBox();
  Save(std::vector<Box>{{{0, 0}, {31, 100}}, {{0, 100}, {31, 60}}, {{31, 0}, {65, 7}}, {{31, 7}, {65, 153}}});
  ExpectReadsAnyBox();
}

// A step that notes which chunks are asked for.
class NotingStep final : public WindowedStep {
 public:
  explicit NotingStep(const StepReader& reader) : reader_(reader) {}
  const StepContents& Contents() const override { return reader_.contents(); }
  uint64_t ChunkBytes(size_t entry) const override { return uint64_t{kChunkBytes} << (entry % 2); }
  absl::Status Read(std::span<const StepReader::Window> windows) const override {
    for (const StepReader::Window& window : windows) {
      const uint64_t end = window.offset + window.destination.size();
      const uint64_t chunk_bytes = ChunkBytes(window.entry);
      for (uint64_t chunk = window.offset / chunk_bytes; chunk * chunk_bytes < end; ++chunk) {
        ++times_[{window.entry, chunk}];
      }
    }
    return reader_.Read(windows);
  }
  const std::map<std::pair<size_t, uint64_t>, int>& times() const { return times_; }

 private:
  const StepReader& reader_;
  mutable std::map<std::pair<size_t, uint64_t>, int> times_;
};

TEST_F(BoxReadTest, ReadsEachChunkThatHasPartOfTheBoxOnceAndNoOther) {
  Save(std::vector<Box>{{{0, 0}, {48, 160}}, {{48, 0}, {48, 160}}});
  for (int i = 0; i < 50; ++i) {
    const Box box = DrawBox();
    const NotingStep step(*reader_);
    const std::vector<EntryParts> joined = JoinEntries(step.Contents());
    ASSERT_EQ(joined.size(), 1);
    const EntryParts* const parts = &joined.front();
    std::vector<std::byte> bytes(BytesOf(box).size());
    const BoxRead read{.parts = parts, .box = box, .destination = bytes};
    uint64_t told = 0;
    ASSERT_THAT(ReadBoxes(step, {&read, 1}, [&](uint64_t more) { told += more; }), IsOk());
    EXPECT_EQ(told, bytes.size());
    EXPECT_TRUE(bytes == BytesOf(box));
    std::map<std::pair<size_t, uint64_t>, int> needed;
    for (size_t rank = 0; rank < 2; ++rank) {
      const Box held = parts->boxes[rank];
      const auto part = Overlap(held, box);
      if (!part) continue;
      for (int64_t row = part->offset[0]; row < part->offset[0] + part->extent[0]; ++row) {
        const int64_t first = ((row - held.offset[0]) * 160 + part->offset[1]) * 4;
        const int64_t last = first + part->extent[1] * 4 - 1;
        const auto chunk_bytes = static_cast<int64_t>(step.ChunkBytes(rank));
        for (int64_t chunk = first / chunk_bytes; chunk <= last / chunk_bytes; ++chunk) needed[{rank, chunk}] = 1;
      }
    }
    ASSERT_EQ(step.times(), needed) << DescribeBox(box);
  }
}

TEST_F(BoxReadTest, ReadsCopiesAndOverlaps) {
  const Box whole = WholeBox(tensor_.shape);
  Save(std::vector<Box>{whole, whole});
  ExpectReadsAnyBox();
  Save(std::vector<Box>{{{0, 0}, {60, 160}}, {{30, 0}, {66, 160}}, {{0, 0}, {0, 0}}});
  ExpectReadsAnyBox();
}

// What the first rank has cuts the second one's box into two parts, and the later one begins before the earlier one
// ends.
TEST_F(BoxReadTest, ReadsSeveralPartsOfOneChunkInAnyOrder) {
  tensor_.shape = {6, 8};
  whole_.resize(6 * 8 * sizeof(float));
  Save(std::vector<Box>{{{0, 0}, {3, 4}}, {{0, 2}, {6, 6}}, {{3, 0}, {3, 2}}});
  ExpectReadsAnyBox();
}

TEST_F(BoxReadTest, ReadsPartsThatOneOrNoRankHas) {
  Save(std::vector<Box>{{{0, 0}, {48, 160}}, {{50, 0}, {46, 160}}});
  EXPECT_THAT(Read({{0, 0}, {48, 160}}), IsOk());
  EXPECT_THAT(Read({{47, 3}, {10, 5}}),
              StatusIs(absl::StatusCode::kDataLoss,
                       "'w' of step 1 is float32 [96, 160], and no rank has saved [48:50, 3:8] of it"));
  EXPECT_THAT(store_->ReadEntry(step_, "w"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("[48:50, 0:160]")));
}

TEST_F(BoxReadTest, AStepOfWholesIsReadLikeThatOfOneRank) {
  std::deque<RankContents> ranks(2);
  ranks[0].AddBox(tensor_, whole_, {{0, 0}, {96, 53}});
  ranks[1].AddBox(tensor_, whole_, {{0, 53}, {96, 107}});
  for (RankContents& rank : ranks) {
    rank.Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {1}}, {std::byte{'x'}});
  }
  Save(ranks);
  EXPECT_EQ(reader_->contents().entries.size(), 4);
  const auto wholes = store_->OpenStep(step_, StepView::kWholes);
  ASSERT_THAT(wholes, IsOk());
  const std::vector<StoredEntry>& entries = (*wholes)->contents().entries;
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(entries[0].spec, tensor_);
  EXPECT_EQ(entries[0].bytes, whole_.size());
  EXPECT_EQ(entries[0].stored_bytes,
            reader_->contents().entries[0].stored_bytes + reader_->contents().entries[2].stored_bytes);
  EXPECT_EQ(entries[1].spec.name, "text");
  EXPECT_EQ((*wholes)->contents().shards.size(), 2);
  std::vector<std::byte> front(1000), end(7), text(1);
  const StepReader::Window windows[] = {{.entry = 0, .offset = 3, .destination = front},
                                        {.entry = 1, .destination = text},
                                        {.entry = 0, .offset = whole_.size() - 7, .destination = end}};
  ASSERT_THAT((*wholes)->Read(windows), IsOk());
  EXPECT_TRUE(std::ranges::equal(front, std::span(whole_).subspan(3, 1000)));
  EXPECT_TRUE(std::ranges::equal(end, std::span(whole_).last(7)));
  EXPECT_EQ(text[0], std::byte{'x'});
  const StepReader::Window beyond{.entry = 0, .offset = whole_.size() - 6, .destination = end};
  EXPECT_THAT((*wholes)->Read({&beyond, 1}), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("'w' has 61440 bytes")));
  const StepReader::Window overlapping[] = {{.entry = 0, .destination = front},
                                            {.entry = 1, .destination = std::span(front).last(1)}};
  EXPECT_THAT((*wholes)->Read(overlapping), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overlap")));
  const std::vector<int64_t> corner = {5, 50}, size = {1, 10};
  std::vector<std::byte> box(40);
  EXPECT_THAT((*wholes)->ReadBox("w", corner, size, box), IsOk());
  EXPECT_TRUE(box == BytesOf({{5, 50}, {1, 10}}));
  const StepReader::Window none{.entry = 2, .destination = end};
  EXPECT_THAT((*wholes)->Read({&none, 1}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no entry 2")));
}

TEST_F(BoxReadTest, ReadsAScalarAndAnEmptyTensor) {
  std::deque<RankContents> ranks(2);
  const std::vector<std::byte> four(4, std::byte{4});
  ranks[1].Add({.name = "scalar", .dtype = Dtype::kFloat32, .shape = {}}, four);
  ranks[0].Add({.name = "empty", .dtype = Dtype::kFloat32, .shape = {3, 0}}, {});
  Save(ranks);
  std::vector<std::byte> bytes(4);
  ASSERT_THAT(reader_->ReadBox("scalar", {}, {}, bytes), IsOk());
  EXPECT_EQ(bytes, four);
  const std::vector<int64_t> zeros = {0, 0};
  const std::vector<int64_t> extent = {3, 0};
  EXPECT_THAT(reader_->ReadBox("empty", zeros, extent, {}), IsOk());
  EXPECT_EQ(*store_->ReadEntry(step_, "scalar"), four);
  EXPECT_EQ(store_->ReadEntry(step_, "empty")->size(), 0);
}

TEST_F(BoxReadTest, RefusesWhatIsNoBoxOfTheTensor) {
  Save(std::vector<Box>{{{0, 0}, {48, 160}}, {{48, 0}, {48, 160}}});
  std::vector<std::byte> bytes(4);
  const auto read = [&](std::vector<int64_t> offset, std::vector<int64_t> extent) {
    return reader_->ReadBox("w", offset, extent, bytes);
  };
  EXPECT_THAT(read({0, 0}, {1, 1}), IsOk());
  for (const auto& [offset, extent] :
       std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{{{96, 0}, {1, 1}},
                                                                          {{0, 160}, {1, 1}},
                                                                          {{-1, 0}, {1, 1}},
                                                                          {{0, 0}, {97, 1}},
                                                                          {{0, 0}, {-1, 1}},
                                                                          {{0}, {1}},
                                                                          {{}, {}},
                                                                          {{0, 0, 0}, {1, 1, 1}},
                                                                          {{0, 0}, {1}},
                                                                          {{INT64_MAX, 0}, {INT64_MAX, 1}},
                                                                          {{0}, {1, 1}},
                                                                          {{}, {1}}}) {
    EXPECT_THAT(read(offset, extent), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("'w', which is float32 [96")));
  }
  EXPECT_THAT(read({0, 0}, {2, 1}), StatusIs(absl::StatusCode::kInvalidArgument,
                                             "read [0:2, 0:1] of 'w': it has 8 bytes, and the destination 4"));
  EXPECT_THAT(reader_->ReadBox("v", {}, {}, bytes), StatusIs(absl::StatusCode::kNotFound, "step 1 has no entry 'v'"));
}

TEST_F(BoxReadTest, RefusesRanksThatDisagree) {
  std::deque<RankContents> ranks(2);
  EntrySpec other = tensor_;
  other.dtype = Dtype::kInt32;
  ranks[0].AddBox(tensor_, whole_, {{0, 0}, {48, 160}});
  ranks[1].AddBox(other, whole_, {{48, 0}, {48, 160}});
  Save(ranks);
  EXPECT_THAT(
      store_->ReadEntry(step_, "w"),
      StatusIs(absl::StatusCode::kDataLoss,
               "'w' of step 1: it is float32 [96, 160] in the shard of rank 0 and int32 [96, 160] in that of rank 1"));
}

TEST_F(BoxReadTest, TakesTheLowestRanksValue) {
  std::deque<RankContents> ranks(2);
  ranks[0].Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {1}}, {std::byte{'x'}});
  ranks[1].Add({.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {2}},
               {std::byte{'y'}, std::byte{'z'}});
  Save(ranks);
  const auto text = store_->ReadEntry(step_, "text");
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(*text, testing::ElementsAre(std::byte{'x'}));
}

TEST_F(BoxReadTest, WhatTheRanksDisagreeOnIsNotReadAndOtherEntriesAre) {
  std::deque<RankContents> ranks(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks[rank].AddBox(tensor_, whole_, {{48 * rank, 0}, {48, 160}});
    ranks[rank].Add({.name = "buffer", .dtype = Dtype::kUint8, .shape = {1 + rank}},
                    std::vector<std::byte>(1 + rank, std::byte{7}));
  }
  Save(ranks);
  EXPECT_TRUE(*store_->ReadEntry(step_, "w") == whole_);
  EXPECT_THAT(store_->ReadEntry(step_, "buffer"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("uint8 [1]")));
  EXPECT_THAT(store_->Load(StepSelector::Latest(), {"w"}), IsOk());
  EXPECT_THAT(store_->Load(StepSelector::Latest()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'buffer'")));
  const auto wholes = store_->OpenStep(step_, StepView::kWholes);
  ASSERT_THAT(wholes, IsOk());
  std::vector<std::byte> bytes(whole_.size()), one(1);
  const StepReader::Window tensor{.entry = 0, .destination = bytes};
  EXPECT_THAT((*wholes)->Read({&tensor, 1}), IsOk());
  EXPECT_TRUE(bytes == whole_);
  const StepReader::Window buffer{.entry = 1, .destination = one};
  EXPECT_THAT((*wholes)->Read({&buffer, 1}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'buffer'")));
}

TEST_F(BoxReadTest, WholesAreTiedOnlyIfAllOfTheirBytesAre) {
  std::deque<RankContents> ranks(2);
  const EntrySpec flat{.name = "flat", .dtype = Dtype::kFloat32, .shape = {8}};
  const auto with_box = [](EntrySpec spec, std::string name, Box box) {
    spec.name = std::move(name);
    spec.box_offset = box.offset;
    spec.box_extent = box.extent;
    return spec;
  };
  EntrySpec columns{.name = "columns", .dtype = Dtype::kFloat32, .shape = {4, 2}};
  for (int64_t rank = 0; rank < 2; ++rank) {
    RankContents& contents = ranks[static_cast<size_t>(rank)];
    const Box half{{4 * rank}, {4}};
    const size_t first = contents.Add(with_box(flat, "flat", half), std::vector<std::byte>(16, std::byte{1}));
    contents.Tie(with_box(flat, "tied", half), first);
    contents.Tie(with_box(columns, "columns", {{0, rank}, {4, 1}}), first);
    if (rank == 0) contents.Tie({.name = "front", .dtype = Dtype::kFloat32, .shape = {4}}, first);
  }
  Save(ranks);
  const auto wholes = store_->OpenStep(step_, StepView::kWholes);
  ASSERT_THAT(wholes, IsOk());
  std::map<std::string, std::string> tied_to;
  for (const StoredEntry& entry : (*wholes)->contents().entries) tied_to[entry.spec.name] = entry.tied_to;
  EXPECT_EQ(tied_to,
            (std::map<std::string, std::string>{{"columns", ""}, {"flat", ""}, {"front", ""}, {"tied", "flat"}}));
}

TEST_F(BoxReadTest, NamesTheChunkThatIsDamagedAndReadsTheOthers) {
  Save(std::vector<Box>{{{0, 0}, {48, 160}}, {{48, 0}, {48, 160}}});
  FlipBit(reader_->contents().shards[1].path, storage::kShardBlockBytes + 100);
  EXPECT_THAT(Read({{0, 0}, {48, 160}}), IsOk());
  EXPECT_THAT(Read({{48, 0}, {1, 1}}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("chunk 0")));
  EXPECT_THAT(Read({{90, 0}, {6, 160}}), IsOk());
}

}  // namespace
}  // namespace tidemark
