// Restoring, loading and following a step that was saved in parts, in one process.

#include "snapshot/restore/saved_entries.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/derived_state.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/saved_by_ranks.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/capture.h"
#include "tidemark/store_reader.h"
#include "tidemark/worker.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kChunkBytes = 4096;

std::span<const std::byte> BytesOf(const std::vector<float>& numbers) { return std::as_bytes(std::span(numbers)); }

class SavedEntriesTest : public testing::Test {
 protected:
  SavedEntriesTest() {
    std::iota(columns_.begin(), columns_.end(), 1.0F);
    std::iota(rows_.begin(), rows_.end(), -500.0F);
  }

  // What rank `rank` of `world` has: a matrix is split by columns, another by rows, each rank has
  // the bias and the epoch. With several boxes, the columns are cut as those of fused projections are, and the other
  // matrix is split into ranges of its elements.
  void Save(uint32_t world, bool several_boxes = false) {
    std::deque<RankContents> ranks;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const auto part = [&](int64_t size) {
        const int64_t begin = size * rank / world;
        return std::pair(begin, size * (rank + 1) / world - begin);
      };
      RankContents& contents = ranks.emplace_back();
      const auto [column, columns] = part(60);
      const EntrySpec by_columns{.name = "columns", .dtype = Dtype::kFloat32, .shape = {40, 60}};
      const EntrySpec by_rows{.name = "rows", .dtype = Dtype::kFloat32, .shape = {500, 7}};
      if (several_boxes) {
        for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{25, 40}, {0, 10}, {10, 25}}) {
          contents.AddBox(by_columns, BytesOf(columns_), {{begin, column}, {end - begin, columns}});
        }
        const auto [first, count] = part(500 * 7 - 3);
        contents.AddRange(by_rows, BytesOf(rows_), static_cast<uint64_t>(first), static_cast<uint64_t>(count));
        if (rank == 0) contents.AddRange(by_rows, BytesOf(rows_), 500 * 7 - 3, 3);
      } else {
        contents.AddBox(by_columns, BytesOf(columns_), {{0, column}, {40, columns}});
        const auto [row, rows] = part(500);
        contents.AddBox(by_rows, BytesOf(rows_), {{row, 0}, {rows, 7}});
      }
      contents.AddBox({.name = "bias", .dtype = Dtype::kFloat32, .shape = {3}}, BytesOf(bias_), WholeBox(Shape{3}));
      const int64_t epoch = 7 + rank;
      std::vector<std::byte> value(sizeof(epoch));
      std::memcpy(value.data(), &epoch, sizeof(epoch));
      contents.Add({.name = "epoch", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, value);
    }
    Commit(ranks);
  }

  // Throws where it fails, which fails the test.
  void Commit(const std::deque<RankContents>& ranks) {
    const auto store = storage::OpenStore(path_, &warnings_).value();
    const absl::Status saved = SaveByRanks(*store, ++step_, ranks, kChunkBytes);
    if (!saved.ok()) throw std::runtime_error(saved.ToString());
  }

  using Shape = std::vector<int64_t>;

  // A state of one process.
  struct Whole {
    Whole() : columns(40 * 60), rows(500 * 7), bias(3) {
      state.AddTensor("columns", Dtype::kFloat32, {40, 60}, columns.data());
      state.AddTensor("rows", Dtype::kFloat32, {500, 7}, rows.data());
      state.AddTensor("bias", Dtype::kFloat32, {3}, bias.data());
      state.AddValue("epoch", &epoch);
    }
    std::vector<float> columns, rows, bias;
    int64_t epoch = 0;
    State state;
  };

  void ExpectIsWhole(const Whole& whole) const {
    EXPECT_EQ(whole.columns, columns_);
    EXPECT_EQ(whole.rows, rows_);
    EXPECT_EQ(whole.bias, bias_);
    EXPECT_EQ(whole.epoch, 7) << "the lowest rank's";
  }

  const storage::TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  std::vector<float> columns_ = std::vector<float>(40 * 60);
  std::vector<float> rows_ = std::vector<float>(500 * 7);
  std::vector<float> bias_ = {1, 2, 3};
  std::string warnings_;
  int64_t step_ = 0;
};

TEST_F(SavedEntriesTest, ATrainerOfOneProcessRestoresWhatAnyNumberOfRanksSaved) {
  for (const auto& [world, several_boxes] : std::vector<std::pair<uint32_t, bool>>{
           {1, false}, {2, false}, {3, false}, {5, false}, {1, true}, {2, true}, {3, true}}) {
    Save(world, several_boxes);
    Whole whole;
    std::vector<RestoreProgress> told;
    {
      auto checkpointer = AsyncCheckpointer::Open({.directory = path_, .observer = NoWarnings()});
      ASSERT_THAT(checkpointer, IsOk());
      const auto report =
          (*checkpointer)->RestoreLatest(whole.state, {.progress = [&](const RestoreProgress& progress) {
                                           told.push_back(progress);
                                         }});
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(report->step, step_);
      EXPECT_EQ(report->info.world_size, world);
      ASSERT_THAT((*checkpointer)->Close(), IsOk());
    }
    ExpectIsWhole(whole);
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(told.back().bytes_done, told.back().bytes_total);
    EXPECT_EQ(told.back().bytes_total, (40 * 60 + 500 * 7 + 3) * sizeof(float));
  }
}

TEST_F(SavedEntriesTest, ATrainerGoesOnFromIt) {
  Save(3);
  Whole whole;
  auto checkpointer = AsyncCheckpointer::Open({.directory = path_, .observer = NoWarnings()});
  ASSERT_THAT(checkpointer, IsOk());
  ASSERT_THAT((*checkpointer)->RestoreLatest(whole.state), IsOk());
  whole.columns[0] = 99;
  auto save = (*checkpointer)->Save(step_ + 1, whole.state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(save->committed().Wait(), IsOk());
  Whole next;
  ASSERT_THAT((*checkpointer)->RestoreLatest(next.state), IsOk());
  columns_[0] = 99;
  ExpectIsWhole(next);
  Whole earlier;
  ASSERT_THAT((*checkpointer)->Restore(step_, earlier.state), IsOk());
  columns_[0] = 1;
  ExpectIsWhole(earlier);
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
}

TEST_F(SavedEntriesTest, PartsOfAStateAreRestored) {
  Save(2);
  auto reader = StoreReader::Open(path_);
  ASSERT_THAT(reader, IsOk());
  Whole whole;
  ASSERT_THAT((*reader)->Restore(StepSelector::Latest(), whole.state, {.only = {"rows"}}), IsOk());
  EXPECT_EQ(whole.rows, rows_);
  EXPECT_EQ(whole.columns, std::vector<float>(40 * 60));
  std::vector<float> other(10);
  State state;
  state.AddTensor("columns", Dtype::kFloat32, {10}, other.data());
  EXPECT_THAT((*reader)->Restore(StepSelector::Latest(), state, {.allow_unexpected = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("checkpoint has [40, 60], state has [10]")));
}

TEST_F(SavedEntriesTest, TensorsThatAreTiedInTheStateAreIfTheyAreTheSame) {
  std::deque<RankContents> ranks(2);
  for (int64_t rank = 0; rank < 2; ++rank) {
    for (const char* name : {"columns", "tied"}) {
      ranks[static_cast<size_t>(rank)].AddBox({.name = name, .dtype = Dtype::kFloat32, .shape = {40, 60}},
                                              BytesOf(columns_), {{0, 30 * rank}, {40, 30}});
    }
    ranks[static_cast<size_t>(rank)].AddBox({.name = "turned", .dtype = Dtype::kFloat32, .shape = {40, 60}},
                                            BytesOf(columns_), {{20 * rank, 0}, {20, 60}});
  }
  Commit(ranks);
  auto reader = StoreReader::Open(path_);
  ASSERT_THAT(reader, IsOk());
  const auto restore = [&](const std::string& other) {
    std::vector<float> memory(40 * 60);
    State state;
    state.AddTensor("columns", Dtype::kFloat32, {40, 60}, memory.data());
    state.AddTensor(other, Dtype::kFloat32, {40, 60}, memory.data());
    const absl::Status status = (*reader)->Restore(StepSelector::Latest(), state, {.allow_unexpected = true}).status();
    EXPECT_EQ(memory == columns_, status.ok());
    return status;
  };
  EXPECT_THAT(restore("tied"), IsOk());
  EXPECT_THAT(restore("turned"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'turned': it is tied to 'columns'")))
      << "they are split in other ways, and are not compared then";
}

TEST_F(SavedEntriesTest, AWorkerEvaluatesWhatOneRankSavedInSeveralBoxes) {
  Save(1, /*several_boxes=*/true);
  std::vector<std::string> names;
  const auto report = FollowStore(
      {.directory = path_, .evaluator = "e", .idle_timeout = absl::ZeroDuration(), .observer = NoWarnings()},
      [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
        for (const EntrySpec& spec : snapshot.entries()) names.push_back(spec.name + (spec.whole() ? "" : " in parts"));
        EXPECT_TRUE(std::ranges::equal(snapshot.bytes(0), BytesOf(columns_)));
        EXPECT_TRUE(std::ranges::equal(snapshot.bytes(1), BytesOf(rows_)));
        return Metrics{{"ok", 1}};
      });
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->evaluated, 1);
  EXPECT_THAT(names, ElementsAre("columns", "rows", "bias", "epoch"));
}

TEST_F(SavedEntriesTest, WhatOneRankSavedInSeveralBoxesIsReadInPartsOrAsWholes) {
  Save(1, /*several_boxes=*/true);
  auto reader = StoreReader::Open(path_);
  ASSERT_THAT(reader, IsOk());
  const auto parts = (*reader)->OpenStep(step_);
  ASSERT_THAT(parts, IsOk());
  std::vector<std::string> names;
  for (const StoredEntry& entry : (*parts)->contents().entries) names.push_back(entry.spec.name);
  EXPECT_THAT(names, ElementsAre("columns", "columns", "columns", "rows", "rows", "rows", "bias", "epoch"));
  const auto wholes = (*reader)->OpenStep(step_, StepView::kWholes);
  ASSERT_THAT(wholes, IsOk());
  ASSERT_EQ((*wholes)->contents().entries.size(), 4);
  for (const StepReader* step : {parts->get(), wholes->get()}) {
    std::vector<float> box(2 * 30);
    ASSERT_THAT(step->ReadBox("columns", std::vector<int64_t>{9, 5}, std::vector<int64_t>{2, 30},
                              std::as_writable_bytes(std::span(box))),
                IsOk());
    EXPECT_TRUE(std::ranges::equal(std::span(box).first(30), std::span(columns_).subspan(9 * 60 + 5, 30)));
    EXPECT_TRUE(std::ranges::equal(std::span(box).last(30), std::span(columns_).subspan(10 * 60 + 5, 30)));
  }
  const auto rows = (*reader)->ReadEntry(step_, "rows");
  ASSERT_THAT(rows, IsOk());
  EXPECT_TRUE(std::ranges::equal(*rows, BytesOf(rows_)));
  const auto snapshot = (*reader)->Load(StepSelector::Latest(), {"columns"});
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_TRUE(std::ranges::equal((*snapshot)->bytes(0), BytesOf(columns_)));
}

// A state that has two boxes of a matrix, beside a whole tensor.
struct StateOfBoxes {
  StateOfBoxes() {
    const auto box = [](std::vector<float>& numbers, int64_t begin, int64_t end) {
      return State::Entry{.spec = {.name = "columns",
                                   .dtype = Dtype::kFloat32,
                                   .shape = {40, 60},
                                   .box_offset = {begin, 0},
                                   .box_extent = {end - begin, 60}},
                          .bytes = numbers.size() * sizeof(float),
                          .host = reinterpret_cast<std::byte*>(numbers.data())};
    };
    state.SetDerivedEntries({box(back, 10, 40), box(front, 0, 10)});
    state.AddTensor("bias", Dtype::kFloat32, {3}, bias.data());
  }
  std::vector<float> front = std::vector<float>(10 * 60, 1.0F);
  std::vector<float> back = std::vector<float>(30 * 60, 2.0F);
  std::vector<float> bias = {1, 2, 3};
  DerivedState state;
};

TEST_F(SavedEntriesTest, AStateWithSeveralBoxesOfATensorIsSavedAndReadAsAWhole) {
  StateOfBoxes boxes;
  const auto whole_of = [&] {
    std::vector<float> whole = boxes.front;
    whole.insert(whole.end(), boxes.back.begin(), boxes.back.end());
    return whole;
  };
  auto checkpointer = AsyncCheckpointer::Open({.directory = path_, .observer = NoWarnings()});
  ASSERT_THAT(checkpointer, IsOk());
  // The second save finds the chunks of each box, also if a restarted trainer makes it.
  for (int64_t step = 1; step <= 3; ++step) {
    boxes.front[7] = static_cast<float>(step);
    auto save = (*checkpointer)->Save(step, boxes.state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    EXPECT_EQ((*checkpointer)->LatestStep()->reused_bytes > 0, step > 1);
    if (step != 2) continue;
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
    checkpointer = AsyncCheckpointer::Open({.directory = path_, .observer = NoWarnings()});
    ASSERT_THAT(checkpointer, IsOk());
  }
  auto reader = StoreReader::Open(path_);
  ASSERT_THAT(reader, IsOk());
  for (int64_t step = 1; step <= 3; ++step) {
    boxes.front[7] = static_cast<float>(step);
    const auto bytes = (*reader)->ReadEntry(step, "columns");
    ASSERT_THAT(bytes, IsOk());
    EXPECT_TRUE(std::ranges::equal(*bytes, BytesOf(whole_of())));
    Whole whole;
    ASSERT_THAT((*checkpointer)->Restore(step, whole.state, {.allow_missing = true}), IsOk());
    EXPECT_EQ(whole.columns, whole_of());
  }
  const StateOfBoxes trained = {};
  const std::vector<float> front = boxes.front;
  std::fill(boxes.front.begin(), boxes.front.end(), 0.0F);
  std::fill(boxes.back.begin(), boxes.back.end(), 0.0F);
  ASSERT_THAT((*checkpointer)->RestoreLatest(boxes.state), IsOk());
  EXPECT_EQ(boxes.front, front);
  EXPECT_EQ(boxes.back, trained.back);
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
}

TEST_F(SavedEntriesTest, ASnapshotHasTheBoxesOfItsState) {
  StateOfBoxes boxes;
  const auto snapshot = Capture(boxes.state);
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ((*snapshot)->entries().size(), 3);
  EXPECT_EQ((*snapshot)->Find("columns"), 1) << "the first of them";
  const absl::Status restored = RestoreFrom(**snapshot, boxes.state);
  EXPECT_THAT(restored,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'columns': the state holds only a part of it")));
  EXPECT_THAT(std::string(restored.message()), testing::Not(HasSubstr("renamed twice")));
}

TEST_F(SavedEntriesTest, ABoxThatOneRankHasNotSavedIsMissed) {
  std::deque<RankContents> ranks(1);
  const EntrySpec spec{.name = "columns", .dtype = Dtype::kFloat32, .shape = {40, 60}};
  ranks[0].AddBox(spec, BytesOf(columns_), {{0, 0}, {40, 30}});
  ranks[0].AddBox(spec, BytesOf(columns_), {{0, 31}, {40, 29}});
  Commit(ranks);
  auto reader = StoreReader::Open(path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->Load(StepSelector::Latest()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no rank has saved [0:40, 30:31] of it")));
}

TEST_F(SavedEntriesTest, AWorkerEvaluatesTheWhole) {
  Save(4);
  std::vector<float> seen(40 * 60);
  std::vector<std::string> names;
  const auto report = FollowStore(
      {.directory = path_, .evaluator = "e", .idle_timeout = absl::ZeroDuration(), .observer = NoWarnings()},
      [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
        for (const EntrySpec& spec : snapshot.entries()) names.push_back(spec.name);
        if (snapshot.bytes(0).size() != BytesOf(seen).size()) return absl::InternalError("it has another size");
        std::memcpy(seen.data(), snapshot.bytes(0).data(), snapshot.bytes(0).size());
        return Metrics{{"ok", 1}};
      });
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->evaluated, 1);
  EXPECT_EQ(seen, columns_);
  EXPECT_THAT(names, ElementsAre("columns", "rows", "bias", "epoch"));
}

TEST_F(SavedEntriesTest, AWorkerEvaluatesItInHalfPrecision) {
  Save(4);
  std::vector<float> seen;
  const auto report = FollowStore({.directory = path_,
                                   .evaluator = "e",
                                   .entries = {"columns"},
                                   .half_precision = HalfPrecision::kBfloat16,
                                   .idle_timeout = absl::ZeroDuration(),
                                   .observer = NoWarnings()},
                                  [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                    const std::span<const std::byte> bytes = snapshot.bytes(0);
                                    for (size_t i = 0; i < bytes.size(); i += 2) {
                                      uint32_t bits = 0;
                                      std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, &bytes[i], 2);
                                      seen.push_back(std::bit_cast<float>(bits));
                                    }
                                    return Metrics{{"ok", 1}};
                                  });
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(seen.size(), columns_.size());
  for (size_t i = 0; i < 256; ++i) ASSERT_EQ(seen[i], columns_[i]) << "a number that bfloat16 has";
}

TEST_F(SavedEntriesTest, ItsEntriesAreLoadedByPatterns) {
  Save(3);
  auto reader = StoreReader::Open(path_);
  ASSERT_THAT(reader, IsOk());
  auto snapshot = (*reader)->Load(StepSelector::Latest(), {"rows", "epoch"});
  ASSERT_THAT(snapshot, IsOk());
  ASSERT_EQ((*snapshot)->entries().size(), 2);
  EXPECT_TRUE((*snapshot)->entries()[0].whole());
  EXPECT_TRUE(std::ranges::equal((*snapshot)->bytes(0), BytesOf(rows_)));
}

TEST_F(SavedEntriesTest, DamageOfOneRanksShardIsFoundAndAnEarlierStepTaken) {
  Save(2);
  Save(3);
  std::string shard;
  {
    auto reader = StoreReader::Open(path_);
    ASSERT_THAT(reader, IsOk());
    auto step = (*reader)->OpenStep(2);
    ASSERT_THAT(step, IsOk());
    shard = (*step)->contents().shards[1].path;
  }
  FlipBit(shard, storage::kShardBlockBytes + 10);
  Whole whole;
  auto checkpointer = AsyncCheckpointer::Open({.directory = path_, .observer = NoWarnings()});
  ASSERT_THAT(checkpointer, IsOk());
  const auto report = (*checkpointer)->RestoreLatest(whole.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  ASSERT_EQ(report->passed_over.size(), 1);
  EXPECT_THAT(report->passed_over[0].second, HasSubstr("shard-00001-of-00003.tmk"));
  ExpectIsWhole(whole);
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
}

TEST_F(SavedEntriesTest, ATensorOfWhichAPartIsInNoShardIsNotRestored) {
  std::deque<RankContents> ranks(2);
  const EntrySpec spec{.name = "columns", .dtype = Dtype::kFloat32, .shape = {40, 60}};
  ranks[0].AddBox(spec, BytesOf(columns_), {{0, 0}, {40, 30}});
  ranks[1].AddBox(spec, BytesOf(columns_), {{0, 31}, {40, 29}});
  Commit(ranks);
  auto reader = StoreReader::Open(path_);
  ASSERT_THAT(reader, IsOk());
  const auto lacks_a_column = AllOf(HasSubstr("no rank has saved [0:40, 30:31] of it"), HasSubstr("'columns'"));
  EXPECT_THAT((*reader)->Load(StepSelector::Latest()), StatusIs(absl::StatusCode::kDataLoss, lacks_a_column));
  Whole whole;
  EXPECT_THAT((*reader)->Restore(StepSelector::Latest(), whole.state, {.allow_missing = true}),
              StatusIs(absl::StatusCode::kDataLoss, lacks_a_column));
  auto checkpointer = AsyncCheckpointer::Open({.directory = path_, .observer = NoWarnings()});
  ASSERT_THAT(checkpointer, IsOk());
  EXPECT_THAT((*checkpointer)->RestoreLatest(whole.state, {.allow_missing = true}),
              StatusIs(absl::StatusCode::kDataLoss, lacks_a_column));
  const auto latest = (*checkpointer)->LatestStep();
  ASSERT_THAT(latest, IsOk()) << "its bytes are sound, so it is not marked as damaged";
  EXPECT_EQ(latest->step, step_);
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
}

}  // namespace
}  // namespace tidemark
