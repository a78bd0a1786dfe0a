#include "snapshot/staging/stager.h"

#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/test_snapshot.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

// A state whose one tensor is out of the host's reach, and which notes who asks what.
class NotingState final : public State {
 public:
  explicit NotingState(std::vector<float> device) : device_(std::move(device)) {
    SetDerivedEntries(
        {Entry{.spec = {.name = "device", .dtype = Dtype::kFloat32, .shape = {static_cast<int64_t>(device_.size())}},
               .bytes = device_.size() * sizeof(float)}});
  }
  absl::Status BeginStaging() override {
    calls += "begin ";
    return absl::OkStatus();
  }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    for (const CopyRequest& request : requests) {
      calls += entries()[request.entry].spec.name + " ";
      std::memcpy(request.destination, device_.data(), entries()[request.entry].bytes);
    }
    return copy_status;
  }

  std::string calls;
  absl::Status copy_status;

 private:
  std::vector<float> device_;
};

TEST(Stager, SaysWhatBecomesOfSavesThatHaveNoMemoryBesideAnother) {
  const std::pair<WhenFull, std::string> policies[] = {
      {WhenFull::kSkip, "saves are skipped until the one before is written"},
      {WhenFull::kFail, "saves fail until the one before is written"},
      {WhenFull::kBlock, "saves wait until the one before is written"}};
  for (const auto& [policy, words] : policies) {
    std::vector<float> weight(3'000'000);
    State state;
    state.AddTensor("weight", Dtype::kFloat32, {3'000'000}, weight.data());
    int asked = 0;
    std::vector<std::string> warnings;
    std::unique_ptr<StagedSnapshot> first;
    Stager stager(
        {.when_full = policy},
        [&]() -> AvailableMemory {
          return {.bytes = asked++ == 0 ? 20u << 20 : 1u << 20, .limit = "the test says so"};
        },
        [&](std::string_view line) {
          warnings.emplace_back(line);
          first.reset();  // as if it were written now
        });
    auto begun = stager.Begin(1, state, {}, absl::UnixEpoch());
    ASSERT_THAT(begun, IsOk());
    first = *std::move(begun);
    EXPECT_THAT(stager.Begin(2, state, {}, absl::UnixEpoch()), IsOk());
    EXPECT_THAT(warnings, testing::ElementsAre(testing::AllOf(testing::StartsWith(words + ", because memory is short"),
                                                              HasSubstr("the test says so"))));
  }
}

TEST(Stager, CopiesTensorsAndValues) {
  std::vector<float> weight(3'000'000);
  std::iota(weight.begin(), weight.end(), 0.0F);
  std::string text = "abc";
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {3'000'000}, weight.data());
  state.AddValue("text", &text);
  Stager stager({});
  auto snapshot = stager.Begin(7, state, {.metrics = {{"loss", 0.5}}}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  ASSERT_THAT(stager.CopyTensors(state, **snapshot), IsOk());
  EXPECT_EQ((*snapshot)->step(), 7);
  EXPECT_EQ((*snapshot)->metrics().at("loss"), 0.5);
  EXPECT_EQ(Numbers<float>(**snapshot, "weight"), weight);
  EXPECT_EQ(Numbers<char>(**snapshot, "text"), (std::vector<char>{'a', 'b', 'c'}));
  EXPECT_FALSE((*snapshot)->Find("nothing").has_value());
}

TEST(Stager, TakesValuesAtTheBeginningAndTensorsLater) {
  float weight = 1;
  int64_t epoch = 1;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {}, &weight);
  state.AddValue("epoch", &epoch);
  Stager stager({});
  auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  weight = 2;
  epoch = 2;
  ASSERT_THAT(stager.CopyTensors(state, **snapshot), IsOk());
  EXPECT_EQ(Numbers<float>(**snapshot, "weight")[0], 2);
  EXPECT_EQ(Numbers<int64_t>(**snapshot, "epoch")[0], 1);
}

TEST(Stager, TakesTensorsThatChangeEarlyAtTheBeginning) {
  class BufferState final : public State {
   public:
    explicit BufferState(float* buffer) {
      SetDerivedEntries({Entry{.spec = {.name = "buffer", .dtype = Dtype::kFloat32},
                               .bytes = 4,
                               .host = reinterpret_cast<std::byte*>(buffer),
                               .changes_early = true}});
    }
  };
  float buffer = 1;
  BufferState state(&buffer);
  Stager stager({});
  auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  buffer = 2;
  ASSERT_THAT(stager.CopyTensors(state, **snapshot), IsOk());
  EXPECT_EQ(Numbers<float>(**snapshot, "buffer")[0], 1);
}

TEST(Stager, AsksTheStateForWhatOnlyItCanReachAfterNotingTheDevicesWork) {
  NotingState state({1, 2, 3});
  Stager stager({});
  auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(state.calls, "begin ");
  ASSERT_THAT(stager.CopyTensors(state, **snapshot), IsOk());
  EXPECT_EQ(state.calls, "begin device ");
  EXPECT_EQ(Numbers<float>(**snapshot, "device"), (std::vector<float>{1, 2, 3}));
}

TEST(Stager, ReportsACopyThatFailsAndGivesTheRoomBack) {
  NotingState state({1});
  state.copy_status = absl::InternalError("device on fire");
  Stager stager({});
  auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_THAT(stager.CopyTensors(state, **snapshot), StatusIs(absl::StatusCode::kInternal, HasSubstr("on fire")));
  snapshot->reset();
  EXPECT_EQ(stager.arena().bytes_in_use(), 0u);
}

TEST(Stager, SaysWhenThereIsNoRoomUnderAPolicyThatDoesNotWait) {
  float weight = 1;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {}, &weight);
  Stager stager({.when_full = WhenFull::kFail});
  auto first = stager.Begin(0, state, {}, absl::UnixEpoch());
  auto second = stager.Begin(1, state, {}, absl::UnixEpoch());
  ASSERT_THAT(second, IsOk());
  auto third = stager.Begin(2, state, {}, absl::UnixEpoch());
  ASSERT_THAT(third, IsOk());
  EXPECT_EQ(*third, nullptr);
}

TEST(Stager, WaitsForRoomUntilAGivenTimeWhateverThePolicy) {
  std::vector<float> weight(1000);
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {1000}, weight.data());
  const Deadline passed = Deadline::Passed();
  const Deadline never = Deadline::Never();
  for (WhenFull policy : {WhenFull::kBlock, WhenFull::kSkip, WhenFull::kFail}) {
    Stager stager({.staging_bytes_max = 4096, .when_full = policy});
    auto first = stager.Begin(1, state, {}, absl::UnixEpoch(), nullptr, &passed);
    ASSERT_THAT(first, IsOk());
    ASSERT_NE(*first, nullptr) << "there was room";
    auto second = stager.Begin(2, state, {}, absl::UnixEpoch(), nullptr, &passed);
    ASSERT_THAT(second, IsOk());
    EXPECT_EQ(*second, nullptr);
    std::thread releaser([&] { first->reset(); });
    auto third = stager.Begin(3, state, {}, absl::UnixEpoch(), nullptr, &never);
    releaser.join();
    ASSERT_THAT(third, IsOk());
    EXPECT_NE(*third, nullptr);
  }
}

TEST(Stager, GoesBeyondTheBudgetForALastChanceWhereOnlyEvaluatorsAreInTheWay) {
  std::vector<float> weight(1000);
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {1000}, weight.data());
  const Deadline passed = Deadline::Passed();
  bool left = false;
  Stager stager({.staging_bytes_max = 4096, .when_full = WhenFull::kBlock});
  stager.set_only_evaluators_are_left([&] { return left; });
  auto first = stager.Begin(1, state, {}, absl::UnixEpoch());
  ASSERT_THAT(first, IsOk());
  auto second = stager.Begin(2, state, {}, absl::UnixEpoch(), nullptr, &passed);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(*second, nullptr);
  left = true;
  auto third = stager.Begin(3, state, {}, absl::UnixEpoch(), nullptr, &passed);
  ASSERT_THAT(third, IsOk());
  ASSERT_NE(*third, nullptr);
  EXPECT_EQ(stager.arena().bytes_in_use(), 8192u);
}

TEST(Stager, HasTheMemoryOfASaveThatWasPrepared) {
  std::vector<float> weight(1'000'000);
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {1'000'000}, weight.data());
  Stager stager({});
  ASSERT_THAT(stager.Prepare(state), IsOk());
  EXPECT_GE(stager.arena().bytes_mapped(), weight.size() * sizeof(float));
  EXPECT_EQ(stager.arena().bytes_in_use(), 0u);
  const uint64_t mapped = stager.arena().bytes_mapped();
  auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(stager.arena().bytes_mapped(), mapped);
}

TEST(Stager, HasTheMemoryThatWasPreparedInTheBackground) {
  std::vector<float> weight(20'000'000);
  std::string value = "short";
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {20'000'000}, weight.data());
  state.AddValue("value", &value);
  ASSERT_THAT(state.Refresh(), IsOk());
  Stager stager({});
  stager.PrepareInBackground(state);
  const uint64_t mapped = stager.arena().bytes_mapped();
  EXPECT_GE(mapped, weight.size() * sizeof(float));
  EXPECT_EQ(stager.arena().bytes_in_use(), 0u);
  value.assign(100'000, 'x');  // there was room to grow
  auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(stager.arena().bytes_mapped(), mapped);
  EXPECT_EQ(stager.arena().bytes_in_use(), mapped);
}

TEST(Stager, GoesOnTouchingWhatWasPreparedBefore) {
  std::vector<float> weight(20'000'000), moments(20'000'000);
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {20'000'000}, weight.data());
  ASSERT_THAT(state.Refresh(), IsOk());
  Stager stager({});
  stager.PrepareInBackground(state);
  const uint64_t mapped = stager.arena().bytes_mapped();
  stager.PrepareInBackground(state);
  EXPECT_EQ(stager.arena().bytes_mapped(), mapped);
  state.AddTensor("moments", Dtype::kFloat32, {20'000'000}, moments.data());
  ASSERT_THAT(state.Refresh(), IsOk());
  stager.PrepareInBackground(state);
  const uint64_t larger = stager.arena().bytes_mapped();
  EXPECT_GE(larger, 2 * weight.size() * sizeof(float));
  EXPECT_LT(larger, 3 * weight.size() * sizeof(float)) << "the smaller memory is kept beside it";
  auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(stager.arena().bytes_mapped(), larger);
}

// As with an optimizer that makes its state at the first step.
TEST(Stager, GivesBackWhatIsTooSmallForAStateThatHasGrown) {
  std::vector<float> weight(20'000'000), moments(20'000'000);
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {20'000'000}, weight.data());
  ASSERT_THAT(state.Refresh(), IsOk());
  Stager stager({});
  stager.PrepareInBackground(state);
  state.AddTensor("moments", Dtype::kFloat32, {20'000'000}, moments.data());
  auto snapshot = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(stager.arena().bytes_mapped(), stager.arena().bytes_in_use());
}

// As where tensors are stored in fewer bytes than a restore fills.
TEST(Stager, GivesBackWhatIsMuchTooLarge) {
  std::vector<float> weight(20'000'000);
  State large;
  large.AddTensor("weight", Dtype::kFloat32, {20'000'000}, weight.data());
  State small;
  small.AddTensor("weight", Dtype::kFloat32, {10'000'000}, weight.data());
  ASSERT_THAT(large.Refresh(), IsOk());
  Stager stager({});
  stager.PrepareInBackground(large);
  auto snapshot = stager.Begin(0, small, {}, absl::UnixEpoch());
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_EQ(stager.arena().bytes_mapped(), stager.arena().bytes_in_use());
}

TEST(Stager, LeavesABudgetItsSecondSnapshot) {
  std::vector<float> weight(2'000'000);
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {2'000'000}, weight.data());
  ASSERT_THAT(state.Refresh(), IsOk());
  Stager stager({.staging_bytes_max = 16 << 20, .when_full = WhenFull::kFail});
  stager.PrepareInBackground(state);
  auto first = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(first, IsOk());
  auto second = stager.Begin(1, state, {}, absl::UnixEpoch());
  ASSERT_THAT(second, IsOk());
  EXPECT_NE(*second, nullptr);
}

TEST(Stager, ReusesThePlanAndTheMemory) {
  float weight = 1;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {}, &weight);
  Stager stager({});
  auto first = stager.Begin(0, state, {}, absl::UnixEpoch());
  ASSERT_THAT(first, IsOk());
  const StagingPlan* const plan = &(*first)->plan();
  const std::byte* const data = (*first)->data(0);
  first->reset();
  auto second = stager.Begin(1, state, {}, absl::UnixEpoch());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(&(*second)->plan(), plan);
  EXPECT_EQ((*second)->data(0), data);
}

// Beside many tensors, a new plan would hold the trainer much longer than the copy of the values.
TEST(Stager, KeepsThePlanAndTheMemoryOfAStateWhoseValuesChangeTheirLength) {
  std::vector<float> weight(1 << 20, 1.0F);
  std::string log = "step 0\n";
  std::vector<std::byte> blob(7, std::byte{1});
  std::string object = "o";
  State state;
  state.AddValue("log", &log);
  state.AddTensor("weight", Dtype::kFloat32, {1 << 20}, weight.data());
  state.AddValue("blob", &blob);
  state.AddObject(
      "object",
      [&]() -> absl::StatusOr<std::vector<std::byte>> {
        const auto bytes = std::as_bytes(std::span(object));
        return std::vector<std::byte>(bytes.begin(), bytes.end());
      },
      [](std::span<const std::byte>) { return absl::OkStatus(); });
  Stager stager({});
  const auto text_of = [](const StagedSnapshot& snapshot, size_t entry) {
    const std::span<const std::byte> bytes = snapshot.bytes(entry);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  std::unique_ptr<StagedSnapshot> earlier;
  const StagingPlan* plan = nullptr;
  std::vector<std::string> logs;
  uint64_t mapped = 0;
  for (int save = 0; save < 50; ++save) {
    logs.push_back(log);
    auto snapshot = stager.Begin(save, state, {}, absl::UnixEpoch());
    ASSERT_THAT(snapshot, IsOk());
    ASSERT_THAT(stager.CopyTensors(state, **snapshot), IsOk());
    if (save == 0) plan = &(*snapshot)->plan();
    EXPECT_EQ(&(*snapshot)->plan(), plan);
    if (save == 1) mapped = stager.arena().bytes_mapped();
    if (save > 1) {
      EXPECT_EQ(stager.arena().bytes_mapped(), mapped);
    }
    EXPECT_EQ(text_of(**snapshot, 0), log);
    EXPECT_EQ((*snapshot)->entries()[0].shape, std::vector<int64_t>{static_cast<int64_t>(log.size())});
    EXPECT_EQ((*snapshot)->bytes(2).size(), blob.size());
    EXPECT_EQ((*snapshot)->SpecOf(2).shape, std::vector<int64_t>{static_cast<int64_t>(blob.size())});
    EXPECT_EQ(text_of(**snapshot, 3), object);
    EXPECT_THAT((*snapshot)->WaitFor(0, log.size()), IsOk()) << "though staging has not ended";
    EXPECT_EQ(std::memcmp((*snapshot)->bytes(1).data(), weight.data(), weight.size() * sizeof(float)), 0);
    if (earlier != nullptr) {
      EXPECT_EQ(text_of(*earlier, 0), logs[logs.size() - 2]) << "it keeps its own";
      EXPECT_EQ(earlier->entries()[0].shape.front(), static_cast<int64_t>(logs[logs.size() - 2].size()));
    }
    earlier = *std::move(snapshot);
    log = save % 3 == 2 ? "" : log + "more and more of it\n";
    blob.resize(static_cast<size_t>(save * 37 % 100));
    object += "o";
  }
}

TEST(Stager, NamesTheStringThatIsNotUtf8) {
  std::string title = "caf\xc3\xa9";
  std::string note = "caf\xe9";
  State state;
  state.AddValue("title", &title);
  state.AddValue("note", &note);
  Stager stager({});
  EXPECT_THAT(stager.Begin(0, state, {}, absl::UnixEpoch()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("entry 'note': the string is not UTF-8; use a vector of bytes")));
  note = title;
  EXPECT_THAT(stager.Begin(0, state, {}, absl::UnixEpoch()), IsOk());
}

TEST(Stager, RefusesAStateWithAnError) {
  State state;
  state.AddTensor("bad", Dtype::kFloat32, {1}, nullptr);
  Stager stager({});
  EXPECT_THAT(stager.Begin(0, state, {}, absl::UnixEpoch()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'bad'")));
}

}  // namespace
}  // namespace tidemark
