// Ranks compare what they should have alike.

#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/ranks/thread_gather.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/replicas.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

// One rank's model: some tensors that are replicated, one of them on a device, a buffer, a value, and its own
// generator.
class Replicated final : public State {
 public:
  explicit Replicated(int tensors = 3) : tensors_(static_cast<size_t>(tensors), std::vector<float>(8, 1.0f)) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      AddTensor(fmt::format("model.{}", i), Dtype::kFloat32, {2, 4}, tensors_[i].data());
    }
    AddTensor("rng", Dtype::kFloat32, {1}, &rng_);
    AddValue("model.step", &step_);
  }

  absl::Status Refresh() override {
    if (absl::Status status = State::Refresh(); !status.ok()) return status;
    const State::Entry on_device = {.spec = {.name = "model.device", .dtype = Dtype::kFloat32, .shape = {4}},
                                    .bytes = 16};
    const State::Entry buffer = {.spec = {.name = "model.mean", .dtype = Dtype::kFloat32, .shape = {1}},
                                 .bytes = 4,
                                 .host = reinterpret_cast<std::byte*>(&mean_),
                                 .changes_early = true};
    if (!has_derived_) SetDerivedEntries({on_device, buffer});
    has_derived_ = true;
    return failure;
  }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    for (const CopyRequest& request : requests) {
      if (entries()[request.entry].spec.name != "model.device") return State::CopyToHost({&request, 1});
      std::memcpy(request.destination, device_.data(), 16);
    }
    return absl::OkStatus();
  }

  float& element(size_t tensor, size_t i) { return tensors_[tensor][i]; }
  float& device(size_t i) { return device_[i]; }
  absl::Status failure;  // of Refresh

  void BeAnotherRank(int32_t rank) {
    rng_ = static_cast<float>(rank);
    step_ = rank;
    mean_ = static_cast<float>(rank);
  }

 private:
  std::vector<std::vector<float>> tensors_;
  std::vector<float> device_ = std::vector<float>(4, 2.0f);
  float rng_ = 0;
  float mean_ = 0;
  int64_t step_ = 0;
  bool has_derived_ = false;
};

class CompareReplicasTest : public testing::Test {
 protected:
  static std::vector<absl::Status> Compare(std::deque<Replicated>& states, std::vector<std::string> patterns) {
    const auto world_size = static_cast<int32_t>(states.size());
    ThreadGather gather(world_size);
    return OnEachRank(world_size, [&](int32_t rank) {
      return CompareReplicas(
          states[static_cast<size_t>(rank)],
          {.rank = rank,
           .world_size = world_size,
           .all_gather = [&gather, rank](const std::string& bytes) { return gather.Gather(rank, bytes); },
           .replicated = patterns});
    });
  }
  static std::deque<Replicated> States(int32_t ranks) {
    std::deque<Replicated> states;
    for (int32_t rank = 0; rank < ranks; ++rank) states.emplace_back().BeAnotherRank(rank);
    return states;
  }
};

TEST_F(CompareReplicasTest, WhatIsTheRanksOwnMayDiffer) {
  std::deque<Replicated> states = States(4);
  EXPECT_THAT(Compare(states, {"model.*"}), Each(IsOk()));
}

TEST_F(CompareReplicasTest, TheRankThatDiffersIsNamed) {
  std::deque<Replicated> states = States(4);
  states[2].element(1, 7) = 1.0000001f;
  EXPECT_THAT(
      Compare(states, {"model.*"}),
      Each(StatusIs(StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("1 of 4 replicated tensors differ between ranks"), HasSubstr("model.1"),
                          HasSubstr("other bytes on rank 2 than on the 3 other ranks"), Not(HasSubstr("model.0"))))));
  states[2].element(1, 7) = 1.0f;
  states[0].device(3) = -2.0f;
  EXPECT_THAT(
      Compare(states, {"model.*"}),
      Each(StatusIs(StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("model.device"), HasSubstr("other bytes on rank 0 than on the 3 other ranks")))));
}

TEST_F(CompareReplicasTest, OfTwoRanksTheHigherIsNamed) {
  std::deque<Replicated> states = States(2);
  states[0].element(0, 0) = -1.0f;
  EXPECT_THAT(Compare(states, {"*.0"}),
              Each(StatusIs(StatusCode::kFailedPrecondition,
                            AllOf(HasSubstr("1 of 1"), HasSubstr("other bytes on rank 1 than on the other rank")))));
}

TEST_F(CompareReplicasTest, AMessageIsShort) {
  std::deque<Replicated> states;
  for (int32_t rank = 0; rank < 30; ++rank) {
    Replicated& state = states.emplace_back(20);
    if (rank < 12) {
      for (size_t i = 0; i < 20; ++i) state.element(i, 0) = 0.0f;
    }
  }
  EXPECT_THAT(
      Compare(states, {"model.*"}),
      Each(StatusIs(StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("20 of 21"), HasSubstr("and 15 more"),
                          HasSubstr("on ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more than on the 18 other ranks")))));
}

TEST_F(CompareReplicasTest, OtherTensorsAreNamed) {
  std::deque<Replicated> states;
  for (const int tensors : {3, 3, 4}) states.emplace_back(tensors);
  EXPECT_THAT(
      Compare(states, {"model.*"}),
      Each(StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("other names, dtypes or shapes"),
                                                           HasSubstr("shapes on rank 2 than on the 2 other ranks")))));
}

TEST_F(CompareReplicasTest, AStateThatFailsFailsForAll) {
  std::deque<Replicated> states = States(3);
  states[1].failure = absl::InternalError("no such module");
  EXPECT_THAT(Compare(states, {"model.*"}), Each(StatusIs(StatusCode::kInternal, "rank 1: no such module")));
  states[1].failure = absl::OkStatus();
  EXPECT_THAT(Compare(states, {"none.*"}),
              Each(StatusIs(StatusCode::kInvalidArgument, HasSubstr("no tensor of the state is replicated"))));
}

TEST_F(CompareReplicasTest, WhatCannotBeARankIsRefused) {
  Replicated state;
  EXPECT_THAT(CompareReplicas(state, {}), IsOk());  // one process
  EXPECT_THAT(CompareReplicas(state, {.rank = 1, .world_size = 2, .replicated = {"*"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no all_gather")));
  const auto none = [](const std::string&) { return std::vector<std::string>(); };
  EXPECT_THAT(CompareReplicas(state, {.rank = 2, .world_size = 2, .all_gather = none, .replicated = {"*"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 2 of 2")));
  EXPECT_THAT(CompareReplicas(state, {.rank = 1, .world_size = 2, .all_gather = none, .replicated = {"*"}}),
              StatusIs(StatusCode::kInternal, HasSubstr("0 texts for 2 ranks")));
}

}  // namespace
}  // namespace tidemark
