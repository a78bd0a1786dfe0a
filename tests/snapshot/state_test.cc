#include "tidemark/state.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/derived_state.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

std::span<const std::byte> BytesOf(const auto& value) { return std::as_bytes(std::span(&value, 1)); }

TEST(State, ListsTensorsAndValuesWithTheirPlaces) {
  float weight[6] = {};
  int64_t epoch = 3;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {2, 3}, weight);
  state.AddValue("epoch", &epoch);
  ASSERT_THAT(state.Refresh(), IsOk());
  ASSERT_EQ(state.entries().size(), 2u);
  EXPECT_EQ(state.entries()[0].bytes, sizeof(weight));
  EXPECT_EQ(state.entries()[0].host, reinterpret_cast<std::byte*>(weight));
  EXPECT_EQ(state.entries()[1].spec.kind, EntryKind::kInt64);
  EXPECT_EQ(state.entries()[1].host, reinterpret_cast<std::byte*>(&epoch));
}

TEST(State, RefusesANameUsedTwice) {
  int64_t a = 0;
  double b = 0;
  State state;
  state.AddValue("x", &a);
  state.AddValue("x", &b);
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x' was added twice")));
}

TEST(State, HasBoxesOfATensor) {
  float rows[2][4] = {};
  float more[1][4] = {};
  State state;
  state.AddBox("weight", Dtype::kFloat32, {8, 4}, {2, 0}, {2, 4}, rows);
  state.AddBox("weight", Dtype::kFloat32, {8, 4}, {7, 0}, {1, 4}, more);
  state.AddBox("none", Dtype::kFloat32, {8, 4}, {8, 0}, {0, 4}, nullptr);
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.entries()[0].bytes, sizeof(rows));
  EXPECT_EQ(state.entries()[1].spec.box_offset, (std::vector<int64_t>{7, 0}));
  EXPECT_EQ(state.entries()[2].bytes, 0u);
}

TEST(State, RefusesBoxesThatAreNone) {
  float data[32] = {};
  const auto refuses = [&](std::vector<int64_t> offset, std::vector<int64_t> extent, std::string_view why) {
    State state;
    state.AddBox("weight", Dtype::kFloat32, {8, 4}, std::move(offset), std::move(extent), data);
    EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument,
                                          testing::AllOf(HasSubstr("'weight'"), HasSubstr(std::string(why)))));
  };
  refuses({0}, {2, 4}, "an offset of 1 dimensions");
  refuses({0, 0}, {}, "an extent of 0");
  refuses({7, 0}, {2, 4}, "box");
  refuses({0, 0}, {-1, 4}, "box");
  State twice;
  for (int i = 0; i < 2; ++i) twice.AddBox("weight", Dtype::kFloat32, {8, 4}, {0, 0}, {2, 4}, data);
  EXPECT_THAT(twice.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'weight': its box")));
}

TEST(State, RefusesANameThatItsDerivedPartUsesToo) {
  int64_t a = 0;
  DerivedState state;
  state.AddValue("x", &a);
  state.SetDerivedEntries({State::Entry{.spec = {.name = "x", .dtype = Dtype::kInt8, .shape = {0}}}});
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x' was added twice")));
}

TEST(State, RemembersTheFirstErrorOfAnAdd) {
  float weight = 0;
  State state;
  state.AddTensor("bad", Dtype::kFloat32, {-1}, &weight);
  state.AddTensor("", Dtype::kFloat32, {}, &weight);
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'bad': shape [-1]")));
  EXPECT_THAT(state.PrepareRestore({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'bad'")));
}

TEST(State, RefusesNullDataUnlessThereIsNone) {
  State state;
  state.AddTensor("empty", Dtype::kFloat32, {0, 4}, nullptr);
  EXPECT_THAT(state.Refresh(), IsOk());
  state.AddTensor("null", Dtype::kFloat32, {1}, nullptr);
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'null': its data is null")));
}

TEST(State, RefusesAVariableThatIsNull) {
  const auto refuses = [](auto* value) {
    State state;
    state.AddValue("n", value);
    EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, "entry 'n': its variable is null"));
  };
  refuses(static_cast<int64_t*>(nullptr));
  refuses(static_cast<double*>(nullptr));
  refuses(static_cast<bool*>(nullptr));
  refuses(static_cast<std::string*>(nullptr));
  refuses(static_cast<std::vector<std::byte>*>(nullptr));
}

TEST(State, SaysWhichEntryHasNoProperName) {
  int64_t epoch = 0;
  State without;
  without.AddValue("epoch", &epoch);
  without.AddValue("", &epoch);
  EXPECT_THAT(without.Refresh(),
              StatusIs(absl::StatusCode::kInvalidArgument, "entry 1, counted from 0, was added with an empty name"));
  State odd;
  odd.AddValue("caf\xe9", &epoch);
  EXPECT_THAT(odd.Refresh(),
              StatusIs(absl::StatusCode::kInvalidArgument, "an entry has a name that is not UTF-8: 'caf\\xe9'"));
}

TEST(State, IsAsItWasOnceAStringThatWasTooLongIsShorterAgain) {
  if (storage::kAddressSanitizer || storage::kThreadSanitizer) GTEST_SKIP() << "it takes 1 GiB, and as much for each";
  std::string text = "as before";
  State state;
  state.AddValue("text", &text);
  ASSERT_THAT(state.Refresh(), IsOk());
  std::string too_long(EntrySpec::kValueBytesMax + 1, 'x');
  text.swap(too_long);
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'text'")));
  text.swap(too_long);
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.entries()[0].spec.shape, std::vector<int64_t>{9});
  EXPECT_EQ(state.entries()[0].bytes, 9u);
}

TEST(State, TiesTensorsThatLieInTheVerySameBytes) {
  float weight[8] = {};
  int64_t epoch = 0;
  State state;
  state.AddTensor("weight", Dtype::kFloat32, {8}, weight);
  state.AddTensor("part", Dtype::kFloat32, {4}, weight);
  state.AddTensor("tied", Dtype::kFloat32, {8}, weight);
  state.AddTensor("view", Dtype::kInt16, {2, 8}, weight);
  state.AddTensor("same part", Dtype::kFloat32, {4}, weight);
  state.AddTensor("shifted", Dtype::kFloat32, {4}, weight + 1);
  state.AddTensor("empty", Dtype::kFloat32, {0}, weight);
  state.AddTensor("also empty", Dtype::kFloat32, {0}, weight);
  state.AddTensor("nowhere", Dtype::kFloat32, {0}, nullptr);
  state.AddTensor("nowhere too", Dtype::kFloat32, {0}, nullptr);
  state.AddValue("epoch", &epoch);
  state.AddValue("epoch too", &epoch);
  state.AddTensor("epoch as a tensor", Dtype::kInt64, {1}, &epoch);
  const uint64_t version = state.structure_version();
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.structure_version(), version);
  std::vector<int64_t> aliases;
  for (const State::Entry& entry : state.entries()) aliases.push_back(entry.alias_of);
  EXPECT_THAT(aliases, testing::ElementsAre(-1, -1, 0, 0, 1, -1, -1, -1, -1, -1, -1, -1, -1));
}

TEST(State, TiesTensorsThatAreAddedBeforeADerivedPart) {
  float weight[2] = {};
  DerivedState state;
  state.SetDerivedEntries({State::Entry{.spec = {.name = "a"}}, State::Entry{.spec = {.name = "b"}, .alias_of = 0}});
  state.AddTensor("weight", Dtype::kFloat32, {2}, weight);
  state.AddTensor("tied", Dtype::kFloat32, {2}, weight);
  EXPECT_EQ(state.entries()[1].alias_of, 0);
  EXPECT_EQ(state.entries()[3].alias_of, 2);
}

State::Entry RowsOf(std::string name, int64_t begin, int64_t end) {
  return {.spec = {.name = std::move(name),
                   .dtype = Dtype::kInt8,
                   .shape = {8, 4},
                   .box_offset = {begin, 0},
                   .box_extent = {end - begin, 4}},
          .bytes = static_cast<uint64_t>(4 * (end - begin))};
}

TEST(State, MayHaveSeveralBoxesOfATensor) {
  DerivedState state;
  state.SetDerivedEntries({RowsOf("w", 4, 8), RowsOf("v", 0, 8), RowsOf("w", 0, 2)});
  EXPECT_THAT(state.Refresh(), IsOk());
  state.SetDerivedEntries({RowsOf("w", 4, 8), RowsOf("v", 0, 8), RowsOf("w", 3, 5)});
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        "entry 'w': its box [3:5, 0:4] overlaps with [4:8, 0:4] of entry 0"));
  state.SetDerivedEntries({RowsOf("w", 4, 8), RowsOf("w", 4, 8)});
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("its box [4:8, 0:4] is that of entry 0, too")));
  int8_t whole[32] = {};
  state.AddTensor("w", Dtype::kInt8, {8, 4}, whole);
  EXPECT_THAT(state.Refresh(), StatusIs(absl::StatusCode::kInvalidArgument, "entry 'w' was added twice"));
}

TEST(State, FollowsAStringThatGrowsAndMoves) {
  std::string text = "a";
  State state;
  state.AddValue("text", &text);
  ASSERT_THAT(state.Refresh(), IsOk());
  const uint64_t before = state.structure_version();
  text = std::string(1000, 'b');
  ASSERT_THAT(state.Refresh(), IsOk());
  EXPECT_EQ(state.entries()[0].bytes, 1000u);
  EXPECT_EQ(state.entries()[0].spec.shape, std::vector<int64_t>{1000});
  EXPECT_EQ(state.entries()[0].host, reinterpret_cast<std::byte*>(text.data()));
  EXPECT_EQ(state.structure_version(), before);
}

TEST(State, KeepsItsVersionWhileNothingChangesAndNeverSharesIt) {
  int64_t epoch = 0;
  State one;
  State two;
  one.AddValue("epoch", &epoch);
  two.AddValue("epoch", &epoch);
  const uint64_t version = one.structure_version();
  ASSERT_THAT(one.Refresh(), IsOk());
  epoch = 7;
  ASSERT_THAT(one.Refresh(), IsOk());
  EXPECT_EQ(one.structure_version(), version);
  EXPECT_NE(one.structure_version(), two.structure_version());
}

TEST(State, KeepsReferencesWithinTheDerivedPartRightWhenSomethingIsAddedBefore) {
  int64_t epoch = 0;
  DerivedState state;
  state.SetDerivedEntries({State::Entry{.spec = {.name = "a"}}, State::Entry{.spec = {.name = "b"}, .alias_of = 0},
                           State::Entry{.spec = {.name = "c"}, .staged_with = 1}});
  state.AddValue("epoch", &epoch);
  ASSERT_EQ(state.derived_begin(), 1u);
  EXPECT_EQ(state.entries()[2].alias_of, 1);
  EXPECT_EQ(state.entries()[3].staged_with, 2);
  state.SetDerivedEntries({State::Entry{.spec = {.name = "a"}}, State::Entry{.spec = {.name = "b"}, .alias_of = 0},
                           State::Entry{.spec = {.name = "c"}, .staged_with = 1}});
  EXPECT_EQ(state.entries()[2].alias_of, 1);
  EXPECT_EQ(state.entries()[3].staged_with, 2);
}

TEST(State, SetsValuesOnlyWhenARestoreFinishes) {
  int64_t epoch = 1;
  std::string text = "old";
  std::vector<std::byte> blob;
  State state;
  state.AddValue("epoch", &epoch);
  state.AddValue("text", &text);
  state.AddValue("blob", &blob);
  ASSERT_THAT(state.PrepareRestore({}), IsOk());
  const int64_t saved = 42;
  ASSERT_THAT(state.Receive(0, BytesOf(saved)), IsOk());
  ASSERT_THAT(state.Receive(1, std::as_bytes(std::span(std::string_view("much longer")))), IsOk());
  ASSERT_THAT(state.Receive(2, BytesOf(saved)), IsOk());
  EXPECT_EQ(epoch, 1);
  EXPECT_EQ(text, "old");
  ASSERT_THAT(state.FinishRestore(), IsOk());
  EXPECT_EQ(epoch, 42);
  EXPECT_EQ(text, "much longer");
  EXPECT_EQ(blob.size(), 8u);
}

TEST(State, ForgetsWhatItReceivedWhenARestoreIsAbandoned) {
  int64_t epoch = 1;
  State state;
  state.AddValue("epoch", &epoch);
  ASSERT_THAT(state.PrepareRestore({}), IsOk());
  const int64_t saved = 42;
  ASSERT_THAT(state.Receive(0, BytesOf(saved)), IsOk());
  state.AbandonRestore();
  ASSERT_THAT(state.FinishRestore(), IsOk());
  EXPECT_EQ(epoch, 1);
}

TEST(State, RefusesAScalarOfAnotherSizeAndABoolThatIsNone) {
  double rate = 0.5;
  State state;
  state.AddValue("rate", &rate);
  ASSERT_THAT(state.PrepareRestore({}), IsOk());
  EXPECT_THAT(state.Receive(0, BytesOf(int8_t{1})), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'rate'")));
  EXPECT_EQ(rate, 0.5);

  bool flag = false;
  State other;
  other.AddValue("flag", &flag);
  ASSERT_THAT(other.PrepareRestore({}), IsOk());
  EXPECT_THAT(other.Receive(0, BytesOf(uint8_t{2})), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'flag'")));
  EXPECT_FALSE(flag);
}

}  // namespace
}  // namespace tidemark
