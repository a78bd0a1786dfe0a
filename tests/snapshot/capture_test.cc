#include "tidemark/capture.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/sleeping_thread.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

TEST(CaptureTest, BringsAStateBackWithoutADisk) {
  TestTrainer trainer;
  trainer.SetTo(1);
  auto before = Capture(trainer.state);
  ASSERT_THAT(before, IsOk());
  trainer.SetTo(2);
  auto between = Capture(trainer.state);
  ASSERT_THAT(between, IsOk());
  trainer.SetTo(3);
  ASSERT_THAT(RestoreFrom(**before, trainer.state), IsOk());
  EXPECT_TRUE(trainer.IsAt(1));
  ASSERT_THAT(RestoreFrom(**between, trainer.state), IsOk());
  EXPECT_TRUE(trainer.IsAt(2));
}

TEST(CaptureTest, OutlivesTheState) {
  auto trainer = std::make_unique<TestTrainer>();
  trainer->SetTo(1);
  auto snapshot = Capture(trainer->state);
  ASSERT_THAT(snapshot, IsOk());
  trainer = std::make_unique<TestTrainer>();
  ASSERT_THAT(RestoreFrom(**snapshot, trainer->state), IsOk());
  EXPECT_TRUE(trainer->IsAt(1));
}

TEST(CaptureTest, RestoresPartsUnderOtherNames) {
  TestTrainer trainer;
  trainer.SetTo(1);
  auto snapshot = Capture(trainer.state);
  ASSERT_THAT(snapshot, IsOk());
  TestTrainer other;
  other.SetTo(2);
  ASSERT_THAT(RestoreFrom(**snapshot, other.state, {.only = {"note"}}), IsOk());
  EXPECT_EQ(other.note, "after step 1");
  EXPECT_EQ(other.epoch, 2);
  int64_t age = 0;
  State renamed;
  renamed.AddValue("age", &age);
  ASSERT_THAT(RestoreFrom(**snapshot, renamed, {.renames = {{"epoch", "age"}}, .allow_unexpected = true}), IsOk());
  EXPECT_EQ(age, 1);
}

TEST(CaptureTest, RefusesWhatDoesNotFitAndTouchesNothing) {
  TestTrainer trainer;
  trainer.SetTo(1);
  auto snapshot = Capture(trainer.state);
  ASSERT_THAT(snapshot, IsOk());
  TestTrainer narrow(7);
  narrow.SetTo(2);
  EXPECT_THAT(RestoreFrom(**snapshot, narrow.state),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("model.weight"), HasSubstr("[300000]"))));
  EXPECT_TRUE(narrow.IsAt(2));
  EXPECT_THAT(RestoreFrom(**snapshot, trainer.state, {.only = {"modle.*"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("modle.*")));
}

// A state in which two names are one tensor.
class TiedState final : public State {
 public:
  TiedState() {
    AddTensor("a", Dtype::kFloat32, {2}, values);
    Entry tied = entries()[0];
    tied.spec.name = "b";
    std::vector<Entry> derived;
    derived.push_back(tied);
    SetDerivedEntries(derived);
    mutable_entries()[1].alias_of = 0;
  }
  float values[2] = {1, 2};
};

TEST(CaptureTest, RefusesToTieWhatDiffersInTheSnapshot) {
  float a[2] = {1, 2};
  float b[2] = {1, 2};
  State apart;
  apart.AddTensor("a", Dtype::kFloat32, {2}, a);
  apart.AddTensor("b", Dtype::kFloat32, {2}, b);
  auto same = Capture(apart);
  b[1] = 3;
  auto different = Capture(apart);
  ASSERT_THAT(same, IsOk());
  ASSERT_THAT(different, IsOk());
  TiedState tied;
  ASSERT_THAT(RestoreFrom(**same, tied), IsOk());
  EXPECT_EQ(tied.values[1], 2);
  EXPECT_THAT(RestoreFrom(**different, tied), StatusIs(StatusCode::kInvalidArgument, HasSubstr("tied")));
}

TEST(CaptureTest, RefusesTensorsThatShareAPartOfTheirMemoryAndDifferInTheSnapshot) {
  std::vector<int32_t> a = {1, 2, 3, 4};
  std::vector<int32_t> b = {3, 4, 5, 6};
  int64_t epoch = 7;
  State apart;
  apart.AddTensor("a", Dtype::kInt32, {4}, a.data());
  apart.AddTensor("b", Dtype::kInt32, {4}, b.data());
  apart.AddValue("epoch", &epoch);
  auto same = Capture(apart);
  b[1] = 9;
  auto different = Capture(apart);
  ASSERT_THAT(same, IsOk());
  ASSERT_THAT(different, IsOk());
  std::vector<int32_t> memory(6, -1);
  int64_t restored = 0;
  State overlapping;
  overlapping.AddTensor("a", Dtype::kInt32, {4}, memory.data());
  overlapping.AddTensor("b", Dtype::kInt32, {4}, memory.data() + 2);
  overlapping.AddValue("epoch", &restored);
  EXPECT_THAT(
      RestoreFrom(**different, overlapping),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("'a' and 'b' share memory"), HasSubstr("differ"))));
  EXPECT_EQ(memory, std::vector<int32_t>(6, -1)) << "it was touched";
  EXPECT_EQ(restored, 0);
  ASSERT_THAT(RestoreFrom(**same, overlapping), IsOk());
  EXPECT_EQ(memory, (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(restored, 7);
}

TEST(CaptureTest, RefusesOptionsThatChooseAStep) {
  TestTrainer trainer;
  auto snapshot = Capture(trainer.state);
  ASSERT_THAT(snapshot, IsOk());
  trainer.SetTo(2);
  EXPECT_THAT(RestoreFrom(**snapshot, trainer.state, {.healthy_only = true}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("healthy_only")));
  EXPECT_THAT(RestoreFrom(**snapshot, trainer.state, {.accept = [](const StepInfo&) { return false; }}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("accept")));
  EXPECT_TRUE(trainer.IsAt(2));
}

// Memory that the system cannot give is refused before any of it is taken: the kernel would kill the process.
TEST(CaptureTest, RefusesAStateForWhichThereIsTooLittleMemory) {
  float first = 0;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {int64_t{1} << 40}, &first);
  EXPECT_THAT(Capture(state), StatusIs(StatusCode::kResourceExhausted,
                                       AllOf(HasSubstr("4398046511104 more bytes"), HasSubstr(" are available ("))));
}

// An overlapped save still reads the tensors when Save has returned. What fills or copies the state waits for that.
TEST(CaptureTest, WaitsUntilAnOverlappedSaveHasReadTheTensors) {
  const storage::TestDirectory directory;
  const std::string store = directory / "store";
  const std::string other = directory / "other";
  GatedState one;
  one.late = 1;
  one.gate.Notify();
  const auto snapshot = Capture(one);
  ASSERT_THAT(snapshot, IsOk());
  auto second = AsyncCheckpointer::Open({.directory = other});
  ASSERT_THAT(second, IsOk());
  ASSERT_THAT((*second)->Save(1, one)->committed().Wait(), IsOk());
  auto reader = StoreReader::Open(other);
  ASSERT_THAT(reader, IsOk());

  using Call = std::function<absl::Status(State&)>;
  const std::vector<std::pair<std::string, Call>> calls = {
      {"RestoreFrom", [&](State& state) { return RestoreFrom(**snapshot, state); }},
      {"StoreReader::Restore", [&](State& state) { return (*reader)->Restore(1, state).status(); }},
      {"another checkpointer's Restore", [&](State& state) { return (*second)->Restore(1, state).status(); }},
      {"Capture", [&](State& state) { return Capture(state).status(); }},
      {"another checkpointer's Prepare", [&](State& state) { return (*second)->Prepare(state); }},
  };
  auto checkpointer = AsyncCheckpointer::Open({.directory = store, .staging = Staging::kOverlapped});
  ASSERT_THAT(checkpointer, IsOk());
  int64_t step = 0;
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    GatedState state;
    auto save = (*checkpointer)->Save(++step, state);
    ASSERT_THAT(save, IsOk());
    std::atomic<pid_t> thread = 0;
    std::atomic<bool> done = false;
    std::thread caller([&, &call = call] {
      thread = gettid();
      EXPECT_THAT(call(state), IsOk());
      done = true;
    });
    // It reads for as long as the gate is closed.
    while (!done && (thread == 0 || !Sleeps(thread))) std::this_thread::yield();
    for (int look = 0; look < 1000 && !done; ++look) std::this_thread::yield();
    EXPECT_FALSE(done) << "it did not wait";
    state.gate.Notify();
    caller.join();
    ASSERT_THAT(save->committed().Wait(), IsOk());
    GatedState restored;
    ASSERT_THAT((*checkpointer)->Restore(step, restored), IsOk());
    EXPECT_EQ(restored.late, 7) << "the step has what was restored while it was copied";
  }
}

TEST(CaptureTest, DoesNotLookAtTheResultOfTheSaveThatItWaitsFor) {
  const storage::TestDirectory directory;
  auto checkpointer = AsyncCheckpointer::Open(
      {.directory = directory / "store", .staging = Staging::kOverlapped, .observer = NoWarnings()});
  ASSERT_THAT(checkpointer, IsOk());
  GatedState state;
  state.copy_status = absl::InternalError("out of luck");
  state.gate.Notify();
  ASSERT_THAT((*checkpointer)->Save(1, state), IsOk());
  EXPECT_THAT(Capture(state), StatusIs(StatusCode::kInternal, HasSubstr("out of luck")));
  EXPECT_THAT((*checkpointer)->Close(), StatusIs(StatusCode::kInternal, HasSubstr("out of luck")));
}

TEST(CaptureTest, RefusesAStateWithAMistake) {
  TestTrainer trainer;
  trainer.state.AddValue("epoch", &trainer.epoch);
  EXPECT_THAT(Capture(trainer.state), StatusIs(StatusCode::kInvalidArgument, HasSubstr("epoch")));
}

TEST(CaptureTest, TakesWhatAReaderHasLoaded) {
  const storage::TestDirectory directory;
  TestTrainer trainer;
  trainer.SetTo(5);
  auto checkpointer = AsyncCheckpointer::Open({.directory = directory / "store"});
  ASSERT_THAT(checkpointer, IsOk());
  ASSERT_THAT((*checkpointer)->Save(5, trainer.state)->committed().Wait(), IsOk());
  auto reader = StoreReader::Open(directory / "store");
  ASSERT_THAT(reader, IsOk());
  auto loaded = (*reader)->Load(StepSelector::Latest());
  ASSERT_THAT(loaded, IsOk());
  trainer.SetTo(6);
  ASSERT_THAT(RestoreFrom(**loaded, trainer.state), IsOk());
  EXPECT_TRUE(trainer.IsAt(5));
}

}  // namespace
}  // namespace tidemark
