// Restoring into a state whose tensors share memory, from checkpoints in which they are alike and in which they differ.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/derived_state.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::HasSubstr;

// Where a tensor of bytes lies in an arena.
struct Range {
  size_t begin = 0;
  size_t size = 0;
};

std::string NameOf(size_t tensor) { return "tensor" + std::to_string(tensor); }

// Half of those whose size allows it are of floats, which have a codec of their own.
void AddTensor(State& state, size_t tensor, std::byte* data, size_t size) {
  if (size % 4 == 0 && tensor % 2 == 0) {
    state.AddTensor(NameOf(tensor), Dtype::kFloat32, {static_cast<int64_t>(size / 4)}, data);
  } else {
    state.AddTensor(NameOf(tensor), Dtype::kUint8, {static_cast<int64_t>(size)}, data);
  }
}

void AddRanges(State& state, const std::vector<Range>& ranges, std::byte* arena) {
  for (size_t i = 0; i < ranges.size(); ++i) AddTensor(state, i, arena + ranges[i].begin, ranges[i].size);
}

// Bytes that zstd finds matches in, and floats that it does not.
std::vector<std::byte> Compressible(size_t size, std::mt19937_64& random) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i + 4 <= size; i += 4) {
    const uint32_t word = random() % 2 == 0 ? 7 : static_cast<uint32_t>(random() & 0xffffff);
    std::memcpy(bytes.data() + i, &word, 4);
  }
  return bytes;
}

// Keeps a core busy, so that codec threads are interrupted in the midst of a chunk.
class BusyCore {
 public:
  BusyCore() {
    thread_ = std::thread([this] {
      std::vector<std::byte> bytes(1 << 20);
      while (!stop_) std::fill(bytes.begin(), bytes.end(), std::byte{1});
    });
  }
  ~BusyCore() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

class SharedMemoryTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(Compression compression = Compression::kSpace) {
    auto checkpointer = AsyncCheckpointer::Open(
        {.directory = store_, .compression = compression, .tuning = {.chunk_bytes = 65536, .codec_threads = 2}});
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }
  void Save(AsyncCheckpointer& checkpointer, int64_t step, State& state) {
    auto save = checkpointer.Save(step, state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }
  // Tensors that share no memory.
  void SaveApart(AsyncCheckpointer& checkpointer, int64_t step, std::vector<std::vector<std::byte>>& tensors) {
    State state;
    for (size_t i = 0; i < tensors.size(); ++i) AddTensor(state, i, tensors[i].data(), tensors[i].size());
    Save(checkpointer, step, state);
  }
  void ExpectAllCommitted(const AsyncCheckpointer& checkpointer) {
    auto steps = checkpointer.Steps();
    ASSERT_THAT(steps, IsOk());
    for (const StepInfo& info : *steps) EXPECT_EQ(info.state, StepState::kCommitted) << info.step << info.reason;
  }

  TestDirectory directory_;
  const std::string store_ = directory_ / "store";
};

TEST_F(SharedMemoryTest, StoresTiedTensorsOnceAndRestoresThem) {
  std::mt19937_64 random(1);
  std::vector<std::byte> arena = Compressible(1 << 20, random);
  const std::vector<std::byte> saved = arena;
  State state;
  state.AddTensor("weight", Dtype::kInt32, {1 << 18}, arena.data());
  state.AddTensor("tied", Dtype::kInt32, {1 << 18}, arena.data());
  state.AddTensor("view", Dtype::kUint8, {1 << 10, 1 << 10}, arena.data());
  auto checkpointer = Open();
  Save(*checkpointer, 1, state);
  EXPECT_EQ(checkpointer->LatestStep()->logical_bytes, arena.size());
  std::fill(arena.begin(), arena.end(), std::byte{0});
  ASSERT_THAT(checkpointer->RestoreLatest(state), IsOk());
  EXPECT_EQ(arena, saved);
  // A state that does not tie them has each.
  std::vector<std::byte> apart[3];
  State untied;
  for (auto& bytes : apart) bytes.resize(arena.size());
  untied.AddTensor("weight", Dtype::kInt32, {1 << 18}, apart[0].data());
  untied.AddTensor("tied", Dtype::kInt32, {1 << 18}, apart[1].data());
  untied.AddTensor("view", Dtype::kUint8, {1 << 10, 1 << 10}, apart[2].data());
  ASSERT_THAT(checkpointer->RestoreLatest(untied), IsOk());
  for (auto& bytes : apart) EXPECT_EQ(bytes, saved);
  // And the other way round: what was saved of each is alike, and is read once.
  Save(*checkpointer, 2, untied);
  EXPECT_EQ(checkpointer->LatestStep()->logical_bytes, 3 * arena.size());
  std::fill(arena.begin(), arena.end(), std::byte{0});
  ASSERT_THAT(checkpointer->RestoreLatest(state), IsOk());
  EXPECT_EQ(arena, saved);
}

TEST_F(SharedMemoryTest, RefusesACheckpointWithOtherBytesForTheSameMemory) {
  struct Case {
    const char* what;
    std::vector<Range> ranges;  // the last two are those that differ
    size_t differing = 0;       // the byte of the arena in which they do
    std::string said;
  };
  const std::string both = "'tensor0' and 'tensor1' share memory in the state, but they differ in the checkpoint";
  for (const Case& test : {Case{"equal", {{0, 200'000}, {0, 200'000}}, 199'999, "'tensor1': it is tied to 'tensor0'"},
                           Case{"nested", {{0, 200'000}, {70'000, 100}}, 70'099, both},
                           Case{"with one begin", {{0, 200'000}, {0, 70'000}}, 0, both},
                           Case{"shifted", {{0, 200'000}, {199'999, 70'000}}, 199'999, both}}) {
    SCOPED_TRACE(test.what);
    std::mt19937_64 random(1);
    const std::vector<std::byte> bytes = Compressible(300'000, random);
    std::vector<std::vector<std::byte>> tensors;
    for (const Range& range : test.ranges) {
      tensors.emplace_back(bytes.begin() + static_cast<ptrdiff_t>(range.begin),
                           bytes.begin() + static_cast<ptrdiff_t>(range.begin + range.size));
    }
    std::filesystem::remove_all(store_);
    auto checkpointer = Open();
    SaveApart(*checkpointer, 1, tensors);
    tensors[1][test.differing - test.ranges[1].begin] ^= std::byte{1};
    SaveApart(*checkpointer, 2, tensors);

    std::vector<std::byte> arena(bytes.size(), std::byte{0x5a});
    const std::vector<std::byte> untouched = arena;
    State state;
    AddRanges(state, test.ranges, arena.data());
    EXPECT_THAT(checkpointer->RestoreLatest(state), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(test.said)));
    EXPECT_EQ(arena, untouched);
    EXPECT_THAT(checkpointer->Restore(2, state), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(test.said)));
    EXPECT_EQ(arena, untouched);
    ASSERT_THAT(checkpointer->Restore(1, state), IsOk());
    for (const Range& range : test.ranges) {
      EXPECT_EQ(std::memcmp(arena.data() + range.begin, bytes.data() + range.begin, range.size), 0);
    }
    // Either of them fits by itself.
    ASSERT_THAT(checkpointer->RestoreLatest(state, {.only = {"tensor1"}}), IsOk());
    EXPECT_EQ(std::memcmp(arena.data() + test.ranges[1].begin, tensors[1].data(), tensors[1].size()), 0);
    ExpectAllCommitted(*checkpointer);
  }
}

// As TorchState has a buffer and a view of it in another shape: each is stored in full, in memory that is one.
TEST_F(SharedMemoryTest, RestoresViewsThatADerivedStateDoesNotTie) {
  std::mt19937_64 random(1);
  std::vector<std::byte> arena = Compressible(1 << 20, random);
  const std::vector<std::byte> saved = arena;
  const auto view = [&](std::string name, std::vector<int64_t> shape) {
    return State::Entry{.spec = {.name = std::move(name), .dtype = Dtype::kInt64, .shape = std::move(shape)},
                        .bytes = arena.size(),
                        .host = arena.data()};
  };
  DerivedState state;
  state.SetDerivedEntries({view("ids", {1 << 10, 1 << 7}), view("ids_flat", {1 << 17})});
  auto checkpointer = Open();
  Save(*checkpointer, 1, state);
  EXPECT_EQ(checkpointer->LatestStep()->logical_bytes, 2 * arena.size());
  const BusyCore busy;
  for (int round = 0; round < 10; ++round) {
    std::fill(arena.begin(), arena.end(), std::byte{0});
    ASSERT_THAT(checkpointer->RestoreLatest(state), IsOk());
    ASSERT_EQ(arena, saved);
  }
  std::vector<std::byte> other = saved;
  other.back() ^= std::byte{1};
  State differing;
  differing.AddTensor("ids", Dtype::kInt64, {1 << 10, 1 << 7}, arena.data());
  differing.AddTensor("ids_flat", Dtype::kInt64, {1 << 17}, other.data());
  Save(*checkpointer, 2, differing);
  EXPECT_THAT(checkpointer->RestoreLatest(state),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'ids' and 'ids_flat' share memory in the state, but they differ in the checkpoint")));
  EXPECT_EQ(arena, saved);
  ExpectAllCommitted(*checkpointer);
}

// Ok means that every entry is there bit for bit. Whatever the outcome, no step is called damaged.
TEST_F(SharedMemoryTest, IsRestoredBitForBitOrRefused) {
  const uint32_t seed = storage::SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const BusyCore busy;
  constexpr size_t kArenaBytes = 400'000;
  for (const Compression compression : {Compression::kThroughput, Compression::kSpace, Compression::kNone}) {
    std::filesystem::remove_all(store_);
    auto checkpointer = Open(compression);
    for (int64_t step = 1; step <= 6; ++step) {
      SCOPED_TRACE(testing::Message() << "compression " << static_cast<int>(compression) << ", step " << step);
      std::vector<Range> ranges;
      const size_t count = 2 + random() % 12;
      while (ranges.size() < count) {
        const size_t kind = random() % 4;
        const Range& earlier = ranges.empty() ? Range{0, kArenaBytes} : ranges[random() % ranges.size()];
        if (kind == 0 && !ranges.empty()) {
          ranges.push_back(earlier);  // equal
        } else if (kind == 1 && earlier.size > 0) {
          const size_t begin = earlier.begin + random() % earlier.size;  // nested
          ranges.push_back({begin, random() % (earlier.begin + earlier.size - begin + 1)});
        } else {
          const size_t begin = random() % kArenaBytes;  // shifted or disjoint
          ranges.push_back({begin, random() % (kArenaBytes - begin + 1)});
        }
      }
      std::vector<std::byte> arena = Compressible(kArenaBytes, random);
      std::vector<std::vector<std::byte>> tensors;
      for (const Range& range : ranges) {
        tensors.emplace_back(arena.begin() + static_cast<ptrdiff_t>(range.begin),
                             arena.begin() + static_cast<ptrdiff_t>(range.begin + range.size));
      }
      const size_t spoiled = random() % ranges.size();
      const bool spoils = random() % 2 == 0 && !tensors[spoiled].empty();
      if (spoils) tensors[spoiled][random() % tensors[spoiled].size()] ^= std::byte{1};
      State saved;
      AddRanges(saved, ranges, arena.data());
      if (spoils) {
        SaveApart(*checkpointer, step, tensors);
      } else {
        Save(*checkpointer, step, saved);
      }

      bool was_refused = false;
      for (int round = 0; round < 3; ++round) {
        std::vector<std::byte> target(kArenaBytes, std::byte{0x5a});
        State state;
        AddRanges(state, ranges, target.data());
        const auto report = checkpointer->RestoreLatest(state);
        if (!report.ok()) {
          ASSERT_THAT(report, StatusIs(absl::StatusCode::kInvalidArgument,
                                       AllOf(HasSubstr("differ in the checkpoint"), HasSubstr(NameOf(spoiled)))));
          ASSERT_TRUE(spoils);
          ASSERT_EQ(std::count(target.begin(), target.end(), std::byte{0x5a}), kArenaBytes) << "touched";
          was_refused = true;
          continue;
        }
        ASSERT_FALSE(was_refused) << "refused, and then not";
        ASSERT_EQ(report->step, step);
        for (size_t i = 0; i < ranges.size(); ++i) {
          ASSERT_TRUE(std::equal(tensors[i].begin(), tensors[i].end(),
                                 target.begin() + static_cast<ptrdiff_t>(ranges[i].begin)))
              << "WRONG BYTES of " << NameOf(i);
        }
      }
    }
    ExpectAllCommitted(*checkpointer);
  }
}

}  // namespace
}  // namespace tidemark
