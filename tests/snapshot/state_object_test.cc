// Objects of any kind in a State: alone, and through a checkpointer.

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/state.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> ToBytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string ToText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A sampler, as a trainer may have one: it knows nothing of Tidemark.
struct Sampler {
  std::string position = "0";
  absl::Status save_status;
  absl::Status load_status;
  bool throws = false;
  int saves = 0;
  std::vector<std::thread::id> threads;

  void AddTo(State& state, std::string name, std::vector<std::string>* loaded = nullptr) {
    state.AddObject(
        name,
        [this]() -> absl::StatusOr<std::vector<std::byte>> {
          ++saves;
          threads.push_back(std::this_thread::get_id());
          if (throws) throw std::runtime_error("no sampler");
          if (!save_status.ok()) return save_status;
          return ToBytes(position);
        },
        [this, name, loaded](std::span<const std::byte> bytes) {
          if (loaded != nullptr) loaded->push_back(name);
          if (throws) throw 7;
          if (!load_status.ok()) return load_status;
          position = ToText(bytes);
          return absl::OkStatus();
        });
  }
};

TEST(StateObject, IsAnEntryOfTheBytesThatItSaved) {
  Sampler sampler{.position = "epoch 3"};
  State state;
  sampler.AddTo(state, "sampler");
  ASSERT_THAT(state.Refresh(), IsOk());
  const State::Entry& entry = state.entries()[0];
  EXPECT_EQ(entry.spec.kind, EntryKind::kBytes);
  EXPECT_EQ(entry.spec.shape, std::vector<int64_t>{7});
  EXPECT_EQ(ToText({entry.host, entry.bytes}), "epoch 3");
}

// A State whose Refresh throws once.
class RefusingState final : public State {
 public:
  absl::Status Refresh() override {
    if (std::exchange(throws, false)) throw std::runtime_error("out of luck");
    return State::Refresh();
  }
  bool throws = false;
};

TEST(StateObject, IsSavedAnewAfterARestoreThatThrew) {
  const storage::TestDirectory directory;
  auto checkpointer = AsyncCheckpointer::Open({.directory = directory / "store"});
  ASSERT_THAT(checkpointer, IsOk());
  Sampler sampler{.position = "first"};
  RefusingState state;
  sampler.AddTo(state, "sampler");
  ASSERT_THAT((*checkpointer)->Save(1, state)->committed().Wait(), IsOk());
  state.throws = true;
  EXPECT_THAT((*checkpointer)->RestoreLatest(state), StatusIs(absl::StatusCode::kInternal, HasSubstr("out of luck")));
  sampler.position = "other";
  ASSERT_THAT((*checkpointer)->Save(2, state)->committed().Wait(), IsOk());
  Sampler elsewhere;
  State copy;
  elsewhere.AddTo(copy, "sampler");
  ASSERT_THAT((*checkpointer)->Restore(2, copy), IsOk());
  EXPECT_EQ(elsewhere.position, "other");
}

TEST(StateObject, KeepsTheStructureWhateverItsLength) {
  Sampler sampler{.position = "10"};
  State state;
  sampler.AddTo(state, "sampler");
  ASSERT_THAT(state.Refresh(), IsOk());
  const uint64_t version = state.structure_version();
  sampler.position = "11";
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.structure_version(), version);
  EXPECT_EQ(ToText({state.entries()[0].host, 2}), "11");
  sampler.position = "";
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.structure_version(), version);
  EXPECT_EQ(state.entries()[0].spec.shape, std::vector<int64_t>{0});
  EXPECT_EQ(state.entries()[0].bytes, 0u);
}

TEST(StateObject, IsNotSavedForARestore) {
  Sampler sampler{.throws = true};
  State state;
  sampler.AddTo(state, "sampler");
  EXPECT_THAT(state.PrepareRestore({}), IsOk());
  EXPECT_EQ(sampler.saves, 0);
}

TEST(StateObject, IsLoadedInTheOrderOfAddingAndBeforeValuesAreSet) {
  std::vector<std::string> loaded;
  std::vector<Sampler> samplers(9);
  int64_t epoch = 1;
  int64_t epoch_seen = -1;
  State state;
  state.AddValue("epoch", &epoch);
  for (int i = 0; i < 9; ++i) samplers[static_cast<size_t>(i)].AddTo(state, std::to_string(i), &loaded);
  state.AddObject(
      "last", [] { return ToBytes(""); },
      [&](std::span<const std::byte>) {
        epoch_seen = epoch;
        return absl::OkStatus();
      });
  ASSERT_THAT(state.PrepareRestore({}), IsOk());
  const int64_t saved = 42;
  ASSERT_THAT(state.Receive(0, std::as_bytes(std::span(&saved, 1))), IsOk());
  for (size_t entry = 10; entry > 0; --entry) ASSERT_THAT(state.Receive(entry, ToBytes("x")), IsOk());
  EXPECT_EQ(samplers[0].position, "0");
  ASSERT_THAT(state.FinishRestore(), IsOk());
  EXPECT_THAT(loaded, ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8"));
  EXPECT_EQ(samplers[8].position, "x");
  EXPECT_EQ(epoch_seen, 1);
  EXPECT_EQ(epoch, 42);
}

TEST(StateObject, RefusesNullFunctionsAndNamesThatAreTaken) {
  State state;
  state.AddObject("object", nullptr, [](std::span<const std::byte>) { return absl::OkStatus(); });
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'object': its save function")));
  State other;
  Sampler sampler;
  sampler.AddTo(other, "x");
  sampler.AddTo(other, "x");
  EXPECT_THAT(other.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x' was added twice")));
}

class StateObjectTest : public testing::Test {
 protected:
  void SetUp() override {
    state_.AddTensor("weight", Dtype::kFloat32, {4}, weight_.data());
    first_.AddTo(state_, "first");
    second_.AddTo(state_, "second");
    state_.AddValue("epoch", &epoch_);
    auto checkpointer = AsyncCheckpointer::Open({.directory = directory_ / "store"});
    ASSERT_THAT(checkpointer, IsOk());
    checkpointer_ = *std::move(checkpointer);
  }

  void Save(int64_t step, SaveOptions options = {}) {
    auto save = checkpointer_->Save(step, state_, std::move(options));
    ASSERT_THAT(save, IsOk());
    // The save has them already.
    first_.position = second_.position = "moved on";
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  storage::TestDirectory directory_;
  std::vector<float> weight_ = std::vector<float>(4, 1.0F);
  Sampler first_{.position = "a"};
  Sampler second_{.position = "b"};
  int64_t epoch_ = 1;
  State state_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

TEST_F(StateObjectTest, IsReadOnTheTrainersThreadBeforeSaveReturnsInEveryStagingMode) {
  int64_t step = 0;
  for (const Staging staging : {Staging::kBlocking, Staging::kOverlapped, Staging::kOnDevice}) {
    first_.position = "a" + std::to_string(++step);
    second_.position = std::string(static_cast<size_t>(step) * 1000, 'b');
    Save(step, {.staging = staging});
    ASSERT_THAT(checkpointer_->RestoreLatest(state_), IsOk());
    EXPECT_EQ(first_.position, "a" + std::to_string(step));
    EXPECT_EQ(second_.position, std::string(static_cast<size_t>(step) * 1000, 'b'));
  }
  EXPECT_EQ(std::count(first_.threads.begin(), first_.threads.end(), std::this_thread::get_id()), first_.saves);
}

TEST_F(StateObjectTest, ThatFailsToSaveFailsTheSaveAndNotTheNextOne) {
  second_.save_status = absl::UnavailableError("still shuffling");
  EXPECT_THAT(checkpointer_->Save(1, state_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("entry 'second': still shuffling")));
  second_.save_status = absl::OkStatus();
  second_.throws = true;
  EXPECT_THAT(checkpointer_->Save(1, state_),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("entry 'second': save threw: no sampler")));
  EXPECT_TRUE(checkpointer_->Steps()->empty());
  second_.throws = false;
  Save(1);
}

TEST_F(StateObjectTest, ThatFailsToLoadFailsTheRestoreAndLeavesWhatComesAfterIt) {
  Save(1);
  Save(2);
  epoch_ = 7;
  weight_.assign(4, 3.0F);
  second_.load_status = absl::InvalidArgumentError("another data set");
  // The step before would be another state, so it is not taken instead.
  EXPECT_THAT(checkpointer_->RestoreLatest(state_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("restore of step 2"), HasSubstr("entry 'second': another data set"))));
  EXPECT_EQ(first_.position, "moved on");  // step 2's
  EXPECT_EQ(epoch_, 7);
  EXPECT_EQ(weight_[0], 1.0F);
  second_.load_status = absl::OkStatus();
  second_.throws = true;
  EXPECT_THAT(checkpointer_->Restore(1, state_),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("entry 'second': load threw something")));
  EXPECT_EQ(first_.position, "a");
  EXPECT_EQ(epoch_, 7);
  second_.throws = false;
  ASSERT_THAT(checkpointer_->Restore(1, state_), IsOk());
  EXPECT_EQ(second_.position, "b");
  EXPECT_EQ(epoch_, 1);
}

TEST_F(StateObjectTest, IsLeftAloneByARestoreOfOtherEntries) {
  Save(1);
  ASSERT_THAT(checkpointer_->Restore(1, state_, {.only = {"weight"}}), IsOk());
  EXPECT_EQ(first_.position, "moved on");
}

}  // namespace
}  // namespace tidemark
