#include "snapshot/restore/entry_match.h"

#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// A checkpoint of float32 tensors, each one chunk with a digest of its own.
class Checkpoint {
 public:
  Checkpoint& Add(std::string name, std::vector<int64_t> shape, uint8_t digest) {
    index.chunks.push_back({.digest = storage::Digest128{{digest}}});
    index.entries.push_back({.spec = {.name = std::move(name), .dtype = Dtype::kFloat32, .shape = std::move(shape)},
                             .first_chunk = index.chunks.size() - 1,
                             .chunk_count = 1});
    return *this;
  }
  absl::StatusOr<EntryMatch> Match(State& state, const RestoreOptions& options = {}) const {
    if (absl::Status status = state.Refresh(); !status.ok()) return status;
    return MatchEntries(index, RenamedSpecs(index, options), state, options);
  }
  storage::ShardIndex index;
};

class TensorState : public State {
 public:
  void Add(std::string name, std::vector<int64_t> shape, Dtype dtype = Dtype::kFloat32) {
    AddTensor(std::move(name), dtype, std::move(shape), memory_);
  }
  using State::SetDerivedEntries;

 private:
  double memory_[1024] = {};
};

TEST(EntryMatch, PairsEntriesByNameWhateverTheirOrder) {
  TensorState state;
  state.Add("b", {2});
  state.Add("a", {1});
  auto match = Checkpoint().Add("a", {1}, 1).Add("b", {2}, 2).Match(state);
  ASSERT_THAT(match, IsOk());
  ASSERT_EQ(match->pairs.size(), 2u);
  EXPECT_EQ(match->pairs[0].saved, 1u);
  EXPECT_EQ(match->pairs[1].saved, 0u);
}

TEST(EntryMatch, ListsEveryDifferenceInOneError) {
  TensorState state;
  state.Add("reshaped", {2, 3});
  state.Add("retyped", {4}, Dtype::kBfloat16);
  state.Add("new", {1});
  int64_t count = 0;
  state.AddValue("count", &count);
  auto match = Checkpoint()
                   .Add("reshaped", {3, 2}, 1)
                   .Add("retyped", {4}, 2)
                   .Add("old", {5}, 3)
                   .Add("count", {}, 4)
                   .Match(state);
  EXPECT_THAT(match, StatusIs(absl::StatusCode::kInvalidArgument,
                              AllOf(HasSubstr("5 differences"),
                                    HasSubstr("'reshaped': shape: checkpoint has [3, 2], state has [2, 3]"),
                                    HasSubstr("'retyped': dtype: checkpoint has float32, state has bfloat16"),
                                    HasSubstr("missing in the checkpoint: 'new' float32 [1]"),
                                    HasSubstr("unexpected in the checkpoint: 'old' float32 [5]"),
                                    HasSubstr("'count': kind: checkpoint has tensor, state has int64"))));
}

TEST(EntryMatch, SaysHowFloatingPointTensorsAreConverted) {
  const auto refusal_of = [](Dtype dtype) {
    TensorState state;
    state.Add("a", {4}, dtype);
    return std::string(Checkpoint().Add("a", {4}, 1).Match(state).status().message());
  };
  EXPECT_THAT(refusal_of(Dtype::kBfloat16),
              EndsWith("\nTorchState::set_converts_dtypes(true) converts floating-point tensors"));
  EXPECT_THAT(refusal_of(Dtype::kInt32), Not(HasSubstr("set_converts_dtypes")));
}

TEST(EntryMatch, ListsManyDifferencesWhole) {
  TensorState state;
  for (int i = 0; i < 80; ++i) state.Add(fmt::format("t{}", i), {1});
  EXPECT_THAT(Checkpoint().Match(state),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("80 differences"), HasSubstr("'t79'"))));
}

TEST(EntryMatch, RefusesPatternsAndRenamesThatFitNothing) {
  TensorState state;
  state.Add("model.a", {1});
  const Checkpoint checkpoint = Checkpoint().Add("model.a", {1}, 1);
  EXPECT_THAT(checkpoint.Match(state, {.only = {"model.*", "modle.*"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'modle.*' matches no entry of the state")));
  state.Add("head.a", {1});
  EXPECT_THAT(
      checkpoint.Match(state, {.only = {"model.*", "head.*"}, .allow_missing = true}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'head.*' matches no entry that the checkpoint has")));
  EXPECT_THAT(checkpoint.Match(state, {.only = {"*"}, .allow_missing = true}), IsOk());
  EXPECT_THAT(checkpoint.Match(state, {.renames = {{"mod", "x"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rename of 'mod' matches no entry")));
}

TEST(EntryMatch, ReportsWhatIsAllowedToBeMissingOrUnexpected) {
  TensorState state;
  state.Add("both", {1});
  state.Add("new", {1});
  auto match = Checkpoint()
                   .Add("both", {1}, 1)
                   .Add("old", {1}, 2)
                   .Match(state, {.allow_missing = true, .allow_unexpected = true});
  ASSERT_THAT(match, IsOk());
  EXPECT_EQ(match->pairs.size(), 1u);
  EXPECT_THAT(match->missing, ElementsAre("new"));
  EXPECT_THAT(match->unexpected, ElementsAre("old"));
}

TEST(EntryMatch, TakesOnlyWhatThePatternsName) {
  TensorState state;
  state.Add("model.a", {1});
  state.Add("optimizer.a", {9});  // would not fit
  auto match = Checkpoint().Add("model.a", {1}, 1).Add("optimizer.a", {2}, 2).Match(state, {.only = {"model.*"}});
  ASSERT_THAT(match, IsOk());
  EXPECT_EQ(match->pairs.size(), 1u);
  EXPECT_THAT(match->missing, ElementsAre());
}

TEST(EntryMatch, AppliesRenames) {
  TensorState state;
  state.Add("model.backbone.weight", {1});
  EXPECT_THAT(
      Checkpoint().Add("model.encoder.weight", {1}, 1).Match(state, {.renames = {{"model.encoder", "model.backbone"}}}),
      IsOk());
}

TEST(EntryMatch, RefusesRenamesThatCollide) {
  TensorState state;
  state.Add("a", {1});
  EXPECT_THAT(Checkpoint().Add("b", {1}, 1).Add("c", {1}, 2).Match(state, {.renames = {{"b", "a"}, {"c", "a"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'a' stands for 'b' and 'c'")));
}

TEST(EntryMatch, LetsARenamedEntryTakeThePlaceOfAnother) {
  TensorState state;
  state.Add("a", {1});
  Checkpoint checkpoint;
  checkpoint.Add("a", {1}, 1).Add("b", {1}, 2);
  EXPECT_THAT(checkpoint.Match(state, {.renames = {{"b", "a"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("its name is taken by a rename, and it has no other: 'a' float32 [1]")));
  for (const RestoreOptions& options : {RestoreOptions{.only = {"a"}, .renames = {{"b", "a"}}},
                                        RestoreOptions{.renames = {{"b", "a"}}, .allow_unexpected = true}}) {
    auto match = checkpoint.Match(state, options);
    ASSERT_THAT(match, IsOk());
    ASSERT_EQ(match->pairs.size(), 1u);
    EXPECT_EQ(match->pairs[0].saved, 1u);
    EXPECT_THAT(match->unexpected, ElementsAre("a"));
  }
}

TEST(EntryMatch, RefusesAnEntryOfWhichOnlyAPartIsThere) {
  TensorState state;
  state.Add("a", {4});
  Checkpoint checkpoint;
  checkpoint.Add("a", {4}, 1);
  checkpoint.index.entries[0].spec.box_offset = {0};
  checkpoint.index.entries[0].spec.box_extent = {2};
  EXPECT_THAT(checkpoint.Match(state), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("only a part of it")));
}

TEST(EntryMatch, ReadsTiedEntriesOnceIfTheirBytesAgree) {
  float memory = 0;
  const auto entry = [&](std::string name, int64_t alias_of) {
    return State::Entry{.spec = {.name = std::move(name), .dtype = Dtype::kFloat32},
                        .bytes = 4,
                        .host = reinterpret_cast<std::byte*>(&memory),
                        .alias_of = alias_of};
  };
  TensorState state;
  state.SetDerivedEntries({entry("a", -1), entry("b", 0)});
  auto agree = Checkpoint().Add("a", {}, 7).Add("b", {}, 7).Match(state);
  ASSERT_THAT(agree, IsOk());
  EXPECT_EQ(agree->pairs.size(), 1u);
  EXPECT_THAT(
      Checkpoint().Add("a", {}, 7).Add("b", {}, 8).Match(state),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'b': it is tied to 'a' in the state, but they differ")));
}

TEST(EntryMatch, LetsStringsChangeTheirLength) {
  std::string text = "abc";
  State state;
  state.AddValue("text", &text);
  Checkpoint checkpoint;
  checkpoint.index.entries.push_back(
      {.spec = {.name = "text", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {99}}});
  EXPECT_THAT(checkpoint.Match(state), IsOk());
}

}  // namespace
}  // namespace tidemark
