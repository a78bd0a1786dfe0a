#include "tools/checkpoint_inspect/tensors/tensor_comparison.h"

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/fake_tensor_source.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using Floats = std::vector<float>;

void Ignore(std::string_view, uint64_t, uint64_t) {}

std::vector<EntryComparison> Compare(const TensorSource& a, const TensorSource& b) {
  std::vector<EntryComparison> entries = MatchEntries(a.entries(), b.entries(), "");
  const absl::Status read = CompareTensors(a, b, entries, Ignore);
  EXPECT_TRUE(read.ok()) << read;
  return entries;
}

std::vector<std::string> Differences(const std::vector<EntryComparison>& entries) {
  std::vector<std::string> told;
  for (const EntryComparison& entry : entries) {
    told.push_back(std::string(entry.name) + " " + std::string(DifferenceName(entry.difference)));
  }
  return told;
}

TEST(MatchEntries, TellsWhatOneSideHasAlone) {
  FakeTensorSource a;
  a.Add<float>("both", Dtype::kFloat32, {1});
  a.Add<float>("gone", Dtype::kFloat32, {1});
  FakeTensorSource b;
  b.Add<float>("new", Dtype::kFloat32, {1});
  b.Add<float>("both", Dtype::kFloat32, {1});
  EXPECT_THAT(Differences(MatchEntries(a.entries(), b.entries(), "")),
              ElementsAre("both same", "gone removed", "new added"));
  EXPECT_THAT(Differences(MatchEntries(a.entries(), b.entries(), "n*")), ElementsAre("new added"));
  EXPECT_THAT(MatchEntries(a.entries(), b.entries(), "x"), IsEmpty());
}

TEST(MatchEntries, TellsInWhatTheStructureDiffers) {
  FakeTensorSource a;
  a.Add<float>("shape", Dtype::kFloat32, {1, 2});
  a.Add<float>("dtype", Dtype::kFloat32, {1});
  a.Add<uint8_t>("kind", Dtype::kUint8, {1});
  FakeTensorSource b;
  b.Add<float>("shape", Dtype::kFloat32, {1, 2, 3});
  b.Add<double>("dtype", Dtype::kFloat64, {1});
  b.Add<uint8_t>("kind", Dtype::kUint8, {1}).spec.kind = EntryKind::kBytes;
  const auto entries = MatchEntries(a.entries(), b.entries(), "");
  ASSERT_THAT(Differences(entries), ElementsAre("shape changed", "dtype changed", "kind changed"));
  EXPECT_TRUE(entries[0].shape_differs && !entries[0].dtype_differs && !entries[0].kind_differs);
  EXPECT_TRUE(entries[1].dtype_differs && !entries[1].shape_differs && !entries[1].kind_differs);
  EXPECT_TRUE(entries[2].kind_differs && !entries[2].shape_differs && !entries[2].dtype_differs);
  EXPECT_THAT(a.reads, IsEmpty());
}

TEST(MatchEntries, PairsPartsThatBothSidesHoldWhateverTheirRanks) {
  FakeTensorSource a;
  a.AddBox<float>("split", Dtype::kFloat32, {4}, {0}, {2}, 0, {1, 2});
  a.AddBox<float>("split", Dtype::kFloat32, {4}, {2}, {2}, 1, {3, 4});
  a.AddBox<float>("moved", Dtype::kFloat32, {4}, {0}, {2}, 0, {1, 2});
  a.AddBox<float>("moved", Dtype::kFloat32, {4}, {2}, {2}, 1, {3, 4});
  a.Add<float>("whole", Dtype::kFloat32, {1, 2});
  FakeTensorSource b;
  b.AddBox<float>("split", Dtype::kFloat32, {4}, {2}, {2}, 0, {3, 5});
  b.AddBox<float>("split", Dtype::kFloat32, {4}, {0}, {2}, 1, {1, 2});
  b.AddBox<float>("moved", Dtype::kFloat32, {4}, {0}, {3}, 0, {1, 2, 3});
  b.AddBox<float>("moved", Dtype::kFloat32, {4}, {3}, {1}, 1, {4});
  b.AddBox<float>("whole", Dtype::kFloat32, {2}, {0}, {2}, 0, {1, 2});
  const auto entries = Compare(a, b);
  ASSERT_THAT(Differences(entries), ElementsAre("split same", "split changed", "moved held differently", "whole same"));
  EXPECT_EQ(entries[1].change->largest_element, 1u);
  EXPECT_THAT(entries[2].a, SizeIs(2));
  EXPECT_THAT(entries[2].b, SizeIs(2));
}

TEST(CompareTensors, ReadsNothingWithTheSameDigest) {
  FakeTensorSource a;
  a.Add<float>("same", Dtype::kFloat32, {1, 2}, "d1");
  a.Add<float>("differs", Dtype::kFloat32, {1, 2}, "d1");
  FakeTensorSource b;
  b.Add<float>("same", Dtype::kFloat32, {1, 2}, "d1");
  b.Add<float>("differs", Dtype::kFloat32, {1, 3}, "d2");
  const auto entries = Compare(a, b);
  EXPECT_THAT(Differences(entries), ElementsAre("same same", "differs changed"));
  EXPECT_THAT(a.reads, ElementsAre("differs"));
  EXPECT_TRUE(entries[1].bytes_differ);
  EXPECT_DOUBLE_EQ(entries[1].change->Norm(), 1);
}

TEST(CompareTensors, LooksAtTheBytesWhereDigestsSayNothing) {
  FakeTensorSource a;
  a.Add<float>("unknown", Dtype::kFloat32, {1, 2});
  a.Add<float>("other chunks", Dtype::kFloat32, {1, 2}, "d1");
  a.Add<uint8_t>("bits", Dtype::kBits8, {1, 2});
  a.Add<uint8_t>("other bits", Dtype::kBits8, {1, 2});
  a.Add<float>("nothing", Dtype::kFloat32, {});
  FakeTensorSource b;
  b.Add<float>("unknown", Dtype::kFloat32, {1, 2});
  b.Add<float>("other chunks", Dtype::kFloat32, {1, 2}, "d2");
  b.Add<uint8_t>("bits", Dtype::kBits8, {1, 2});
  b.Add<uint8_t>("other bits", Dtype::kBits8, {1, 3});
  b.Add<float>("nothing", Dtype::kFloat32, {});
  const auto entries = Compare(a, b);
  EXPECT_THAT(Differences(entries),
              ElementsAre("unknown same", "other chunks same", "bits same", "other bits changed", "nothing same"));
  EXPECT_EQ(entries[3].change, nullptr);
}

TEST(CompareTensors, ReadsTheSamePairOfBytesOnce) {
  FakeTensorSource a;
  FakeTensorSource b;
  for (const char* name : {"embedding", "head"}) {
    a.Add<float>(name, Dtype::kFloat32, {3, 4}, "d1");
    b.Add<float>(name, Dtype::kFloat32, {3, 0}, "d2");
  }
  const auto entries = Compare(a, b);
  EXPECT_THAT(a.reads, ElementsAre("embedding"));
  EXPECT_THAT(b.reads, ElementsAre("embedding"));
  EXPECT_THAT(Differences(entries), ElementsAre("embedding changed", "head changed"));
  EXPECT_TRUE(entries[1].bytes_differ);
  EXPECT_DOUBLE_EQ(entries[1].change->Relative(), 0.8);
}

TEST(CompareTensors, HoldsOtherDtypesAgainstEachOtherByTheirNumbers) {
  FakeTensorSource a;
  a.Add<float>("narrowed", Dtype::kFloat32, {1, -2.5F});
  a.Add<uint8_t>("bits", Dtype::kBits8, {1});
  FakeTensorSource b;
  b.Add<uint16_t>("narrowed", Dtype::kBfloat16, {0x3f80, 0xc000});
  b.Add<uint8_t>("bits", Dtype::kUint8, {1});
  const auto entries = Compare(a, b);
  EXPECT_THAT(Differences(entries), ElementsAre("narrowed changed", "bits changed"));
  EXPECT_EQ(entries[0].change->largest, 0.5);
  EXPECT_FALSE(entries[0].bytes_differ);
  EXPECT_EQ(entries[1].change, nullptr);
  EXPECT_THAT(b.reads, ElementsAre("narrowed"));
}

TEST(CompareTensors, TellsHowFarItIs) {
  FakeTensorSource a;
  a.Add<float>("first", Dtype::kFloat32, {1, 2});
  a.Add<float>("second", Dtype::kFloat32, {1});
  FakeTensorSource b;
  b.Add<float>("first", Dtype::kFloat32, {1, 2});
  b.Add<double>("second", Dtype::kFloat64, {1});
  std::vector<EntryComparison> entries = MatchEntries(a.entries(), b.entries(), "");
  std::vector<std::string> heard;
  const absl::Status read = CompareTensors(a, b, entries, [&](std::string_view name, uint64_t done, uint64_t total) {
    heard.push_back(std::string(name) + " " + std::to_string(done) + " of " + std::to_string(total));
  });
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_THAT(heard, ElementsAre("first 16 of 28", "second 28 of 28"));
}

TEST(CompareTensors, EndsWithTheFirstErrorOfReading) {
  FakeTensorSource a;
  a.Add<float>("x", Dtype::kFloat32, {1, 2});
  FakeTensorSource b;
  b.Add<float>("x", Dtype::kFloat32, {1, 2});
  b.fails_at = "x";
  std::vector<EntryComparison> entries = MatchEntries(a.entries(), b.entries(), "");
  EXPECT_EQ(CompareTensors(a, b, entries, Ignore), absl::DataLossError("rotten"));
}

}  // namespace
}  // namespace tidemark::inspect
