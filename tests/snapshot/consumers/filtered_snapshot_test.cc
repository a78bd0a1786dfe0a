#include "snapshot/consumers/filtered_snapshot.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/staging/owned_snapshot.h"
#include "tests/snapshot/test_snapshot.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

EntrySpec Tensor(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
}

template <typename T>
void Fill(OwnedSnapshot& snapshot, size_t index, const std::vector<T>& numbers) {
  ASSERT_EQ(snapshot.place(index).size(), numbers.size() * sizeof(T));
  std::memcpy(snapshot.place(index).data(), numbers.data(), snapshot.place(index).size());
}

std::shared_ptr<OwnedSnapshot> MixedSnapshot() {
  auto snapshot =
      OwnedSnapshot::Create({.step = 9,
                             .entries = {Tensor("model.a", Dtype::kFloat32, {2}),
                                         Tensor("model.count", Dtype::kInt32, {3}),
                                         Tensor("model.tied", Dtype::kFloat32, {2}),
                                         Tensor("model.b", Dtype::kFloat64, {1, 2}),
                                         {.name = "lr", .kind = EntryKind::kDouble, .dtype = Dtype::kFloat64},
                                         Tensor("model.empty", Dtype::kFloat32, {0})},
                             .alias_of = {-1, -1, 0, -1, -1, -1},
                             .metrics = {{"loss", 2}},
                             .user_metadata = "{\"a\":1}"});
  EXPECT_THAT(snapshot, IsOk());
  Fill<float>(**snapshot, 0, {1, -2});
  Fill<int32_t>(**snapshot, 1, {7, 8, 9});
  Fill<double>(**snapshot, 3, {0.5, 3});
  Fill<double>(**snapshot, 4, {0.001});
  return *snapshot;
}

TEST(FilteredSnapshot, HasTheMatchingEntriesInTheMemoryOfItsBase) {
  const std::shared_ptr<OwnedSnapshot> base = MixedSnapshot();
  const std::vector<std::string> patterns = {"model.t*", "lr", "model.?"};
  auto filtered = FilterSnapshot(base, patterns);
  ASSERT_THAT(filtered, IsOk());
  const Snapshot& part = **filtered;
  EXPECT_EQ(part.step(), 9);
  EXPECT_EQ(part.metrics(), base->metrics());
  EXPECT_EQ(part.user_metadata(), base->user_metadata());
  EXPECT_THAT(part.entries(),
              ElementsAre(base->entries()[0], base->entries()[2], base->entries()[3], base->entries()[4]));
  for (const EntrySpec& entry : part.entries()) {
    EXPECT_EQ(part.bytes(*part.Find(entry.name)).data(), base->bytes(*base->Find(entry.name)).data());
  }
  EXPECT_EQ(part.Find("model.count"), std::nullopt);
  EXPECT_EQ(part.Find("model.nothing"), std::nullopt);
}

TEST(FilteredSnapshot, HoldsItsBaseAsLongAsItLives) {
  std::shared_ptr<OwnedSnapshot> base = MixedSnapshot();
  const std::vector<std::string> patterns = {"model.a"};
  auto filtered = FilterSnapshot(base, patterns);
  ASSERT_THAT(filtered, IsOk());
  const std::weak_ptr<OwnedSnapshot> held = base;
  base.reset();
  EXPECT_FALSE(held.expired());
  filtered->reset();
  EXPECT_TRUE(held.expired());
}

TEST(FilteredSnapshot, IsTheBaseWhereThereIsNoPattern) {
  const std::shared_ptr<OwnedSnapshot> base = MixedSnapshot();
  EXPECT_EQ(*FilterSnapshot(base, {}), base);
}

TEST(FilteredSnapshot, RefusesAPatternThatMatchesNothing) {
  const std::vector<std::string> patterns = {"lr", "modle.*"};
  EXPECT_THAT(FilterSnapshot(MixedSnapshot(), patterns),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'modle.*' matches no entry of the snapshot")));
}

TEST(FilteredSnapshot, ConvertsTensorsOfFloatsAndCopiesTheRest) {
  const std::shared_ptr<OwnedSnapshot> base = MixedSnapshot();
  auto converted = ToHalfPrecision(*base, HalfPrecision::kFloat16);
  ASSERT_THAT(converted, IsOk());
  const Snapshot& halved = **converted;
  EXPECT_EQ(halved.step(), 9);
  EXPECT_EQ(halved.metrics(), base->metrics());
  EXPECT_EQ(halved.user_metadata(), base->user_metadata());
  EXPECT_THAT(halved.entries(),
              ElementsAre(Tensor("model.a", Dtype::kFloat16, {2}), base->entries()[1],
                          Tensor("model.tied", Dtype::kFloat16, {2}), Tensor("model.b", Dtype::kFloat16, {1, 2}),
                          base->entries()[4], Tensor("model.empty", Dtype::kFloat16, {0})));
  EXPECT_THAT(Numbers<uint16_t>(halved, "model.a"), ElementsAre(0x3c00, 0xc000));
  EXPECT_THAT(Numbers<uint16_t>(halved, "model.b"), ElementsAre(0x3800, 0x4200));
  EXPECT_THAT(Numbers<int32_t>(halved, "model.count"), ElementsAre(7, 8, 9));
  EXPECT_THAT(Numbers<double>(halved, "lr"), ElementsAre(0.001));
  EXPECT_EQ(halved.bytes(2).data(), halved.bytes(0).data()) << "tied entries stay tied";
  EXPECT_NE(halved.bytes(1).data(), base->bytes(1).data());
}

TEST(FilteredSnapshot, ConvertsAPartOfASnapshot) {
  const std::vector<std::string> patterns = {"model.tied", "model.b"};
  auto part = FilterSnapshot(MixedSnapshot(), patterns);
  ASSERT_THAT(part, IsOk());
  auto halved = ToHalfPrecision(**part, HalfPrecision::kBfloat16);
  ASSERT_THAT(halved, IsOk());
  EXPECT_THAT(Numbers<uint16_t>(**halved, "model.tied"), ElementsAre(0x3f80, 0xc000));
  EXPECT_THAT(Numbers<uint16_t>(**halved, "model.b"), ElementsAre(0x3f00, 0x4040));
}

}  // namespace
}  // namespace tidemark
