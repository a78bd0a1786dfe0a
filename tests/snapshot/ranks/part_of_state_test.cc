#include "snapshot/ranks/part_of_state.h"

#include <unistd.h>

#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/staging/staging_plan.h"
#include "tests/snapshot/sleeping_thread.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/future.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::ElementsAre;

State::Entry Small(std::string name, int64_t elements, int64_t staged_with = -1, int64_t alias_of = -1) {
  return {.spec = {.name = std::move(name), .dtype = Dtype::kInt8, .shape = {elements}},
          .bytes = static_cast<uint64_t>(elements),
          .alias_of = alias_of,
          .staged_with = staged_with};
}

class DerivedState final : public State {
 public:
  explicit DerivedState(std::vector<Entry> entries) { SetDerivedEntries(std::move(entries)); }
};

TEST(PartOfStateTest, TiesAndStagingOrderAreThoseOfTheWhole) {
  DerivedState whole({Small("m.a", 30), Small("m.b", 12), Small("m.b.moment", 8, 1), Small("m.tied", 12, -1, 1),
                      Small("own", 1, 0)});  // rank 0 writes what "own" is staged with
  PartOfState part(whole, {.rank = 1, .world_size = 2, .replicated = {"m.*"}});
  ASSERT_THAT(part.Refresh(), IsOk());
  std::vector<std::tuple<std::string, int64_t, int64_t>> found;
  for (const State::Entry& entry : part.entries()) {
    found.emplace_back(entry.spec.name, entry.alias_of, entry.staged_with);
  }
  EXPECT_THAT(found, ElementsAre(std::tuple("m.b", -1, -1), std::tuple("m.b.moment", -1, 0),
                                 std::tuple("m.tied", 0, -1), std::tuple("own", -1, -1)));
}

// What a trainer waits for, it may change, and all that comes before that in the order of the whole.
TEST(PartOfStateTest, WhatIsLeftOutIsWaitedForInItsPlace) {
  State::Entry text = Small("text", 0);  // between what is left out and the tensor before it
  text.spec.kind = EntryKind::kString;
  DerivedState whole({Small("p0", 1), text, Small("m.p1", 90), Small("m.p2", 80), Small("p3", 1),
                      Small("own.of.p1", 1, 2), Small("m.of.p0", 7, 0), Small("own.of.p2", 1, 3)});
  // Rank 0 writes m.p1, rank 1 m.p2, rank 2 m.of.p0; each writes the others.
  PartOfState part(whole, {.rank = 1, .world_size = 3, .replicated = {"m.*"}});
  ASSERT_THAT(part.Refresh(), IsOk());
  std::vector<std::string> in_order;
  for (const size_t i : StagingOrder(part.entries())) in_order.push_back(part.entries()[i].spec.name);
  EXPECT_THAT(in_order, ElementsAre("p0", "own.of.p1", "text", "m.p2", "own.of.p2", "p3"));
  const auto before = [&](const char* name) {
    return part.entries()[static_cast<size_t>(part.left_out_by_name()->at(name))].spec.name;
  };
  EXPECT_EQ(part.left_out_by_name()->size(), 2u);
  EXPECT_EQ(before("m.of.p0"), "p0") << "with which it is staged";
  EXPECT_EQ(before("m.p1"), "p0");
}

// An overlapped save of the whole state, by another checkpointer, may still read it.
TEST(PartOfStateTest, WaitsUntilTheWholeStateIsRead) {
  struct Refreshed : State {
    absl::Status Refresh() override {
      was_read = staged.future().ready();
      return State::Refresh();
    }
    Promise staged;
    bool was_read = false;
  };
  Refreshed whole;
  whole.NoteStaging(whole.staged.future());
  PartOfState part(whole, {.rank = 0, .world_size = 2, .replicated = {"m.*"}});
  std::thread reader([&, waiting = gettid()] {
    while (!Sleeps(waiting)) std::this_thread::yield();
    whole.staged.Set(absl::OkStatus());
  });
  EXPECT_THAT(part.Refresh(), IsOk());
  EXPECT_TRUE(whole.was_read);
  reader.join();
}

TEST(PartOfStateTest, FollowsTheWholeState) {
  State whole;
  std::vector<float> a(4), b(3), c(2);
  whole.AddTensor("m.a", Dtype::kFloat32, {4}, a.data());
  whole.AddTensor("m.b", Dtype::kFloat32, {3}, b.data());
  whole.AddTensor("own", Dtype::kFloat32, {2}, c.data());
  std::string text = "1";
  whole.AddValue("own.text", &text);
  PartOfState part(whole, {.rank = 1, .world_size = 2, .replicated = {"m.*"}});
  const auto names = [&] {
    std::vector<std::string> out;
    for (const State::Entry& entry : part.entries()) out.push_back(entry.spec.name);
    return out;
  };
  ASSERT_THAT(part.Refresh(), IsOk());
  EXPECT_THAT(names(), ElementsAre("m.b", "own", "own.text"));
  EXPECT_THAT(*part.left_out_by_name(), ElementsAre(std::pair("m.a", -1)));
  const uint64_t version = part.structure_version();
  text = std::string(1000, 'x');
  ASSERT_THAT(part.Refresh(), IsOk());
  EXPECT_EQ(part.structure_version(), version) << "a value's length is no part of it";
  EXPECT_EQ(part.entries()[2].bytes, 1000u);
  EXPECT_EQ(part.entries()[2].host, reinterpret_cast<std::byte*>(text.data()));
  std::vector<float> d(5);
  whole.AddTensor("m.d", Dtype::kFloat32, {5}, d.data());
  ASSERT_THAT(part.Refresh(), IsOk());
  EXPECT_NE(part.structure_version(), version);
  EXPECT_THAT(names(), ElementsAre("m.a", "m.b", "own", "own.text"));
}

}  // namespace
}  // namespace tidemark
