// AsyncCheckpointer in a job whose ranks hold the same entries, as in data-parallel training: each is written once.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/capture.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

constexpr size_t kElements = 100;  // of each tensor but "model.large", which has 4 times as many

// Adds entries that are the same on all ranks: some tensors, two of them tied, and the number of the step.
class Model {
 public:
  explicit Model(State& state) {
    large_.resize(4 * kElements);
    state.AddTensor("model.large", Dtype::kFloat32, {4, kElements}, large_.data());
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].resize(kElements);
      state.AddTensor(fmt::format("model.{}", i), Dtype::kFloat32, {kElements}, layers_[i].data());
    }
    state.AddTensor("model.tied", Dtype::kFloat32, {kElements}, layers_[0].data());
    state.AddValue("model.step", &step_);
  }

  void TrainTo(int64_t step) {
    step_ = step;
    ForEach([&](float& element, size_t index) { element = Element(step, index); });
  }
  bool IsAt(int64_t step) {
    bool all = step_ == step;
    ForEach([&](float& element, size_t index) { all = all && element == Element(step, index); });
    return all;
  }

  static constexpr size_t kBytes = 8 * kElements * sizeof(float) + sizeof(int64_t);

 private:
  static float Element(int64_t step, size_t index) { return static_cast<float>(7 * step) + static_cast<float>(index); }

  void ForEach(const std::function<void(float&, size_t)>& function) {
    size_t index = 0;
    for (float& element : large_) function(element, index++);
    for (std::vector<float>& layer : layers_) {
      for (float& element : layer) function(element, index++);
    }
  }

  std::vector<float> large_;
  std::array<std::vector<float>, 4> layers_;
  int64_t step_ = -1;
};

class ReplicatedRanksTest : public TrainerRanksTest {
 protected:
  // A job that is open; `change` as TrainerRanks has it.
  struct Job {
    Job(
        const std::string& store, int32_t world_size,
        std::function<void(int32_t, CheckpointerOptions&)> change = [](int32_t, CheckpointerOptions&) {})
        : ranks(store, world_size) {
      for (int32_t rank = 0; rank < world_size; ++rank) models.emplace_back(ranks.trainer(rank).state);
      ranks.ChangeOptions([change = std::move(change)](int32_t rank, CheckpointerOptions& options) {
        options.ranks.replicated = {"model.*"};
        change(rank, options);
      });
      EXPECT_THAT(ranks.Open(), Each(IsOk()));
    }

    std::vector<absl::Status> Save(int64_t step) {
      for (Model& model : models) model.TrainTo(step);
      return ranks.Save(step);
    }
    bool AllAreAt(int64_t step) {
      return std::all_of(models.begin(), models.end(), [&](Model& model) { return model.IsAt(step); });
    }

    TrainerRanks ranks;
    std::deque<Model> models;
  };

  // What the ranks of that job save: the model once, all boxes of "weight", and each rank's number.
  static constexpr uint64_t EntryCount(uint64_t world_size) { return 7 + 2 * world_size; }
  static constexpr uint64_t LogicalBytes(uint64_t world_size) {
    return Model::kBytes + RankTrainer::kRows * RankTrainer::kColumns * sizeof(float) + world_size * sizeof(int64_t);
  }

  void ExpectWrittenOnce(Job& job, int64_t step) {
    const auto world_size = static_cast<uint64_t>(job.ranks.world_size());
    const absl::StatusOr<StepInfo> latest = job.ranks.rank_at(0).LatestStep();
    ASSERT_THAT(latest, IsOk());
    EXPECT_EQ(latest->step, step);
    EXPECT_EQ(latest->entry_count, EntryCount(world_size));
    EXPECT_EQ(latest->logical_bytes, LogicalBytes(world_size));
  }

  // With another number of ranks.
  void ExpectRestored(int64_t step) {
    for (const int32_t world_size : {1, 2, 3, 5}) {
      Job job(store_, world_size);
      EXPECT_THAT(job.ranks.Restore({.allow_missing = true, .allow_unexpected = true}), Each(IsOk())) << world_size;
      EXPECT_TRUE(job.AllAreAt(step)) << world_size;
      EXPECT_TRUE(job.ranks.AllAreAt(step, /*seed=*/false)) << world_size;
      EXPECT_THAT(job.ranks.Close(), Each(IsOk()));
    }
  }
};

TEST_F(ReplicatedRanksTest, AreWrittenByOneRankAndRestoredByAll) {
  {
    Job job(store_, 3);
    EXPECT_THAT(job.Save(10), Each(IsOk()));
    EXPECT_THAT(job.Save(20), Each(IsOk()));
    ExpectWrittenOnce(job, 20);
    EXPECT_THAT(job.ranks.Close(), Each(IsOk()));
    EXPECT_THAT(job.ranks.warnings(), IsEmpty());
  }
  ExpectRestored(20);
}

TEST_F(ReplicatedRanksTest, WithoutAPatternEachRankWritesAll) {
  Job job(store_, 3, [](int32_t, CheckpointerOptions& options) { options.ranks.replicated = {}; });
  EXPECT_THAT(job.Save(10), Each(IsOk()));
  const absl::StatusOr<StepInfo> latest = job.ranks.rank_at(0).LatestStep();
  ASSERT_THAT(latest, IsOk());
  EXPECT_EQ(latest->entry_count, EntryCount(3) + 2 * 7);
}

TEST_F(ReplicatedRanksTest, EvaluatorsSeeTheWholeState) {
  {
    Job job(store_, 3);
    std::atomic<int> whole = 0;
    for (int32_t rank = 0; rank < 3; ++rank) {
      const auto evaluate = [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
        State state;
        Model model(state);
        EXPECT_EQ(snapshot.entries().size(), 7u + 2u);
        EXPECT_THAT(RestoreFrom(snapshot, state, {.allow_unexpected = true}), IsOk());
        whole += model.IsAt(snapshot.step()) ? 1 : 0;
        return Verdict();
      };
      ASSERT_THAT(job.ranks.rank_at(rank).AddEvaluator({.name = fmt::format("of_{}", rank)}, evaluate), IsOk());
    }
    EXPECT_THAT(job.Save(10), Each(IsOk()));
    for (int32_t rank = 0; rank < 3; ++rank) EXPECT_THAT(job.ranks.rank_at(rank).WaitUntilEvaluated(), IsOk());
    EXPECT_EQ(whole, 3);
    ExpectWrittenOnce(job, 10);
    EXPECT_THAT(job.ranks.Close(), Each(IsOk()));
  }
  ExpectRestored(10);
}

TEST_F(ReplicatedRanksTest, StatesThatDifferFailTheSaveOfAll) {
  Job job(store_, 3);
  EXPECT_THAT(job.Save(10), Each(IsOk()));
  float more = 1;
  job.ranks.trainer(1).state.AddTensor("model.more", Dtype::kFloat32, {1}, &more);
  EXPECT_THAT(job.Save(20),
              Each(StatusIs(StatusCode::kAborted, HasSubstr("rank 1 and rank 0 differ in the entries that match"))));
  float others = 2;
  for (const int32_t rank : {0, 2}) {
    job.ranks.trainer(rank).state.AddTensor("model.more", Dtype::kFloat32, {1}, &others);
  }
  EXPECT_THAT(job.Save(30), Each(IsOk()));
}

// Its own reason, though it has no entries to compare.
TEST_F(ReplicatedRanksTest, ARankThatCannotBeginFailsTheSaveOfAll) {
  Job job(store_, 3);
  std::string text = "\xff";
  job.ranks.trainer(1).state.AddValue("own.text", &text);
  const std::vector<absl::Status> told = job.Save(10);
  EXPECT_THAT(told[1], StatusIs(StatusCode::kInvalidArgument, HasSubstr("entry 'own.text': the string is not UTF-8")));
  for (const size_t rank : {0u, 2u}) EXPECT_THAT(told[rank], StatusIs(StatusCode::kAborted, HasSubstr("not UTF-8")));
  text = "sound";
  EXPECT_THAT(job.Save(20), Each(IsOk()));
}

// Which changes what the rank copies from one save to the next.
TEST_F(ReplicatedRanksTest, AnEvaluatorMayComeBetweenSaves) {
  for (const Staging staging : {Staging::kBlocking, Staging::kOverlapped}) {
    const std::string store = store_ + std::to_string(static_cast<int>(staging));
    Job job(store, 2, [&](int32_t, CheckpointerOptions& options) { options.staging = staging; });
    EXPECT_THAT(job.Save(10), Each(IsOk()));
    std::atomic<size_t> entries = 0;
    const auto count = [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
      entries = snapshot.entries().size();
      return Verdict();
    };
    ASSERT_THAT(job.ranks.rank_at(1).AddEvaluator({.name = "count"}, count), IsOk());
    EXPECT_THAT(job.Save(20), Each(IsOk()));
    EXPECT_THAT(job.ranks.rank_at(1).WaitUntilEvaluated(), IsOk());
    EXPECT_EQ(entries, 7u + 2u);
    ExpectWrittenOnce(job, 20);
  }
}

// More of them than are kept, and new ones where old ones were.
TEST_F(ReplicatedRanksTest, StatesMayTakeTurns) {
  Job job(store_, 2);
  std::array<std::optional<State>, 2> states;
  std::array<std::vector<float>, 2> values;
  for (int64_t step = 0; step < 12; ++step) {
    const size_t elements = static_cast<size_t>(step) + 1;
    std::array<std::array<State, 6>, 2> others;
    const auto told = OnEachRank(2, [&](int32_t rank) -> absl::Status {
      const auto r = static_cast<size_t>(rank);
      AsyncCheckpointer& checkpointer = job.ranks.rank_at(rank);
      values[r].assign(elements, static_cast<float>(step));
      states[r].emplace();
      for (const char* name : {"model.a", "model.b"}) {
        states[r]->AddTensor(name, Dtype::kFloat32, {static_cast<int64_t>(elements)}, values[r].data());
      }
      if (step % 2 == 0) {
        for (State& other : others[r]) {
          if (absl::Status prepared = checkpointer.Prepare(other); !prepared.ok()) return prepared;
        }
      }
      auto save = checkpointer.Save(step, *states[r]);
      return save.ok() ? save->committed().Wait() : save.status();
    });
    EXPECT_THAT(told, Each(IsOk()));
    auto reader = StoreReader::Open(store_);
    ASSERT_THAT(reader, IsOk());
    std::vector<float> found(elements, -1);
    State state;
    state.AddTensor("model.b", Dtype::kFloat32, {static_cast<int64_t>(elements)}, found.data());
    ASSERT_THAT((*reader)->RestoreLatest(state, {.allow_unexpected = true}), IsOk());
    EXPECT_EQ(found, values[0]);
  }
}

TEST_F(ReplicatedRanksTest, OverlappedSavesReadOnlyWhatTheyWrite) {
  {
    Job job(store_, 2, [](int32_t, CheckpointerOptions& options) { options.staging = Staging::kOverlapped; });
    for (const int64_t step : {10, 20, 30}) {
      for (Model& model : job.models) model.TrainTo(step);
      std::vector<Future> committed(2);
      for (int32_t rank = 0; rank < 2; ++rank) {
        job.ranks.trainer(rank).TrainTo(step);
        absl::StatusOr<SaveHandle> save = job.ranks.rank_at(rank).Save(step, job.ranks.trainer(rank).state);
        ASSERT_THAT(save, IsOk());
        committed[static_cast<size_t>(rank)] = save->committed();
        for (const char* entry : {"model.large", "model.0", "model.3", "model.tied", "model.step", "weight"}) {
          EXPECT_THAT(job.ranks.rank_at(rank).WaitUntilStaged(entry), IsOk()) << entry;
        }
        EXPECT_THAT(job.ranks.rank_at(rank).WaitUntilStaged("model.4"),
                    StatusIs(StatusCode::kNotFound, HasSubstr("no entry")));
        EXPECT_THAT(job.ranks.rank_at(rank).WaitUntilStaged(), IsOk());
        job.models[static_cast<size_t>(rank)].TrainTo(-step);
        job.ranks.trainer(rank).TrainTo(-step);
      }
      for (Future& future : committed) EXPECT_THAT(future.Wait(), IsOk());
    }
    ExpectWrittenOnce(job, 30);
    EXPECT_THAT(job.ranks.Close(), Each(IsOk()));
  }
  ExpectRestored(30);
}

TEST_F(ReplicatedRanksTest, APatternThatMatchesNothingIsAWarning) {
  Job job(store_, 2, [](int32_t, CheckpointerOptions& options) { options.ranks.replicated.push_back("modle.*"); });
  EXPECT_THAT(job.Save(10), Each(IsOk()));
  EXPECT_THAT(job.Save(20), Each(IsOk()));
  const std::string line =
      "RankOptions::replicated: no entry of step 10 matches 'modle.*'; what it was meant for is written by every "
      "rank\n";
  EXPECT_EQ(job.ranks.warnings(), line + line) << "one of each rank";
}

TEST_F(ReplicatedRanksTest, PatternsThatDifferFailTheOpening) {
  TrainerRanks job(store_, 2);
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    if (rank == 1) options.ranks.replicated = {"model.*"};
  });
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kInvalidArgument, HasSubstr("replicated [model.*]"))));
}

// Tensors that only the state itself can reach, each with its own number as its only element.
class DeviceState final : public State {
 public:
  explicit DeviceState(int32_t tensors) {
    std::vector<Entry> entries;
    for (int32_t i = 0; i < tensors; ++i) {
      entries.push_back({.spec = {.name = fmt::format("model.{:02}", i), .dtype = Dtype::kInt32}, .bytes = 4});
    }
    SetDerivedEntries(std::move(entries));
  }

  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    Copy(requests, 0, &copied);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t> wanted, uint64_t) override {
    on_device.insert(wanted.begin(), wanted.end());
    return std::make_unique<Image>();
  }
  absl::Status Receive(size_t entry, std::span<const std::byte> bytes) override {
    int32_t value = 0;
    std::memcpy(&value, bytes.data(), 4);
    received.push_back({static_cast<int32_t>(entry), value});
    return absl::OkStatus();
  }
  std::shared_ptr<std::byte> AllocateStaging(uint64_t bytes) override {
    allocated.push_back(bytes);
    return nullptr;
  }

  std::vector<uint64_t> allocated;
  static constexpr int32_t kOfImage = 1000;  // what a copy on the device adds to each number

  std::set<size_t> copied;
  std::set<size_t> on_device;
  std::vector<std::pair<int32_t, int32_t>> received;

 private:
  static void Copy(std::span<const CopyRequest> requests, int32_t beyond, std::set<size_t>* copied) {
    for (const CopyRequest& request : requests) {
      const int32_t value = static_cast<int32_t>(request.entry) + beyond;
      std::memcpy(request.destination, &value, 4);
      if (copied != nullptr) copied->insert(request.entry);
    }
  }
  struct Image final : DeviceImage {
    uint64_t bytes() const override { return 4; }
    absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
      Copy(requests, kOfImage, nullptr);
      return absl::OkStatus();
    }
  };
};

class DeviceRanksTest : public ReplicatedRanksTest {
 protected:
  static constexpr int32_t kTensors = 10;

  // Saves with 2 ranks, whose states are returned.
  std::vector<std::unique_ptr<DeviceState>> SaveWith(Staging staging) {
    std::vector<std::unique_ptr<DeviceState>> states;
    for (int rank = 0; rank < 2; ++rank) states.push_back(std::make_unique<DeviceState>(kTensors));
    Job job(store_, 2);
    const auto told = OnEachRank(2, [&](int32_t rank) -> absl::Status {
      auto save =
          job.ranks.rank_at(rank).Save(10, *states[static_cast<size_t>(rank)], {.overwrite = true, .staging = staging});
      return save.ok() ? save->committed().Wait() : save.status();
    });
    EXPECT_THAT(told, Each(IsOk()));
    EXPECT_THAT(job.ranks.Close(), Each(IsOk()));
    return states;
  }
  // The latest step has the number of each tensor plus `beyond`.
  void ExpectSaved(int32_t beyond) {
    auto reader = StoreReader::Open(store_);
    ASSERT_THAT(reader, IsOk());
    DeviceState state(kTensors);
    ASSERT_THAT((*reader)->RestoreLatest(state), IsOk());
    std::vector<std::pair<int32_t, int32_t>> expected;
    for (int32_t i = 0; i < kTensors; ++i) expected.emplace_back(i, i + beyond);
    EXPECT_THAT(state.received, UnorderedElementsAreArray(expected));
  }
};

TEST_F(DeviceRanksTest, EachRankCopiesWhatItWrites) {
  for (const Staging staging : {Staging::kBlocking, Staging::kOverlapped, Staging::kOnDevice}) {
    const auto states = SaveWith(staging);
    const bool is_on_device = staging == Staging::kOnDevice;
    for (const size_t rank : {0u, 1u}) {
      const std::set<size_t>& copied = is_on_device ? states[rank]->on_device : states[rank]->copied;
      EXPECT_THAT(copied, ElementsAre(rank, rank + 2, rank + 4, rank + 6, rank + 8));
      if (is_on_device) {
        EXPECT_THAT(states[rank]->copied, IsEmpty());
      }
    }
    ExpectSaved(is_on_device ? DeviceState::kOfImage : 0);
  }
}

TEST_F(DeviceRanksTest, MemoryIsPreparedForWhatTheRankWrites) {
  std::vector<std::unique_ptr<DeviceState>> states;
  for (int rank = 0; rank < 2; ++rank) states.push_back(std::make_unique<DeviceState>(1024));
  Job job(store_, 2);
  const auto told = OnEachRank(2, [&](int32_t rank) -> absl::Status {
    DeviceState& state = *states[static_cast<size_t>(rank)];
    if (absl::Status status = job.ranks.rank_at(rank).Prepare(state); !status.ok()) return status;
    auto save = job.ranks.rank_at(rank).Save(10, state);
    return save.ok() ? save->committed().Wait() : save.status();
  });
  EXPECT_THAT(told, Each(IsOk()));
  constexpr uint64_t kPlaceBytes = 64;  // of a small entry in a snapshot
  for (const auto& state : states) EXPECT_THAT(state->allocated, ElementsAre(512 * kPlaceBytes));
}

}  // namespace
}  // namespace tidemark
