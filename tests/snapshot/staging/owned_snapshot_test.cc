#include "snapshot/staging/owned_snapshot.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

EntrySpec Floats(std::string name, int64_t count) {
  return {.name = std::move(name), .dtype = Dtype::kFloat32, .shape = {count}};
}

TEST(OwnedSnapshot, HasRoomForEveryEntryAndSharesThatOfTiedOnes) {
  auto snapshot = OwnedSnapshot::Create(
      {.step = 5,
       .entries = {Floats("small", 3), Floats("none", 0), Floats("large", 5000), Floats("tied", 3), Floats("last", 17)},
       .alias_of = {-1, -1, -1, 0, -1},
       .metrics = {{"loss", 2}},
       .user_metadata = "{\"a\":1}"});
  ASSERT_THAT(snapshot, IsOk());
  OwnedSnapshot& owned = **snapshot;
  EXPECT_EQ(owned.step(), 5);
  EXPECT_EQ(owned.metrics().at("loss"), 2);
  EXPECT_EQ(owned.user_metadata(), "{\"a\":1}");
  EXPECT_EQ(owned.Find("large"), 2u);
  EXPECT_EQ(owned.Find("huge"), std::nullopt);
  EXPECT_EQ(owned.bytes(0).size(), 12u);
  EXPECT_TRUE(owned.bytes(1).empty());
  EXPECT_EQ(owned.bytes(3).data(), owned.bytes(0).data());
  EXPECT_TRUE(owned.is_alias(3));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(owned.bytes(2).data()) % 4096, 0u);
  // Nobody's place is another's.
  for (size_t i : {0, 2, 4}) std::memset(owned.place(i).data(), static_cast<int>(i + 1), owned.place(i).size());
  for (size_t i : {0, 2, 4}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(owned.bytes(i).data()) % 64, 0u);
    EXPECT_THAT(owned.bytes(i), testing::Each(static_cast<std::byte>(i + 1)));
  }
}

TEST(OwnedSnapshot, SaysWhenThereIsNoMemory) {
  EXPECT_THAT(OwnedSnapshot::Create({.step = 5, .entries = {Floats("huge", int64_t{1} << 58)}, .alias_of = {-1}}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory for the snapshot of step 5")));
  // More than a number can say.
  EXPECT_THAT(OwnedSnapshot::Create({.step = 5,
                                     .entries = {Floats("a", int64_t{1} << 60), Floats("b", int64_t{1} << 60),
                                                 Floats("c", int64_t{1} << 60), Floats("d", int64_t{1} << 60)},
                                     .alias_of = {-1, -1, -1, -1}}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory")));
}

}  // namespace
}  // namespace tidemark
