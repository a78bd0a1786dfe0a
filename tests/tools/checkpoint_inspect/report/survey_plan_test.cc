#include "tools/checkpoint_inspect/report/survey_plan.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

StoredEntry EntryWithDigest(std::string name, int64_t elements, char digit) {
  StoredEntry entry;
  entry.spec = {
      .name = std::move(name), .dtype = Dtype::kFloat32, .shape = {elements}, .box_offset = {}, .box_extent = {}};
  entry.bytes = static_cast<uint64_t>(elements) * 4;
  entry.digest = std::string(32, digit);
  return entry;
}

TEST(SampleEvenly, KeepsTheFirstAndTheLast) {
  EXPECT_THAT(SampleEvenly(0, 3), IsEmpty());
  EXPECT_THAT(SampleEvenly(3, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(SampleEvenly(9, 3), ElementsAre(0, 4, 8));
  EXPECT_THAT(SampleEvenly(100, 2), ElementsAre(0, 99));
}

TEST(TensorInventory, KnowsWhichStepsHoldWhat) {
  TensorInventory inventory;
  inventory.AddStep(1, std::vector{EntryWithDigest("a", 4, '1')});
  StoredEntry tied = EntryWithDigest("tied", 4, '1');
  tied.tied_to = "a";
  StoredEntry number = EntryWithDigest("epoch", 1, '3');
  number.spec.kind = EntryKind::kInt64;
  StoredEntry integers = EntryWithDigest("mask", 1, '3');
  integers.spec.dtype = Dtype::kInt32;
  inventory.AddStep(2, std::vector{tied, number, integers, EntryWithDigest("b", 2, '5'), EntryWithDigest("a", 4, '1')});
  ASSERT_THAT(inventory.tensors(), SizeIs(2));
  EXPECT_EQ(inventory.others(), 2);
  EXPECT_FALSE(inventory.At(0, 1).present());
  EXPECT_EQ(inventory.At(1, 0).entry, 4);
  EXPECT_TRUE(inventory.At(0, 0).SameBytes(inventory.At(1, 0)));
  EXPECT_FALSE(inventory.At(1, 1).SameBytes(inventory.At(1, 0)));
}

TEST(TensorInventory, TakesOneOfAnotherShapeOrDtypeForAnother) {
  TensorInventory inventory;
  inventory.AddStep(1, std::vector{EntryWithDigest("a", 4, '1')});
  StoredEntry half = EntryWithDigest("a", 4, '2');
  half.spec.dtype = Dtype::kFloat16;
  StoredEntry part = EntryWithDigest("a", 4, '3');
  part.spec.box_offset = {0};
  part.spec.box_extent = {2};
  inventory.AddStep(2, std::vector{EntryWithDigest("a", 5, '1'), half, part});
  EXPECT_THAT(inventory.tensors(), SizeIs(4));
}

TEST(PlanSurvey, ReadsWhatDiffersTheLatestPairFirst) {
  TensorInventory inventory;
  inventory.AddStep(1, std::vector{EntryWithDigest("frozen", 10, '1'), EntryWithDigest("w", 10, '2')});
  inventory.AddStep(2, std::vector{EntryWithDigest("frozen", 10, '1'), EntryWithDigest("w", 10, '3')});
  inventory.AddStep(3, std::vector{EntryWithDigest("frozen", 10, '1'), EntryWithDigest("w", 10, '4')});
  const SurveyPlan plan = PlanSurvey(inventory, 1000);
  EXPECT_THAT(plan.last, ElementsAre(0, 1));
  ASSERT_THAT(plan.pairs, SizeIs(2));
  EXPECT_EQ(plan.pairs[0].first, 1);
  EXPECT_THAT(plan.pairs[0].tensors, ElementsAre(1));
  EXPECT_EQ(plan.bytes, 80 + 80 + 80);
  EXPECT_EQ(plan.bytes_last_left_out + plan.bytes_pairs_left_out + plan.pairs_cut, 0);
}

TEST(PlanSurvey, LeavesOutTheLargestAndTheOldestAndSaysHowMuch) {
  TensorInventory inventory;
  inventory.AddStep(1, std::vector{EntryWithDigest("small", 10, '1'), EntryWithDigest("large", 100, '2')});
  inventory.AddStep(2, std::vector{EntryWithDigest("small", 10, '3'), EntryWithDigest("large", 100, '4')});
  inventory.AddStep(3, std::vector{EntryWithDigest("small", 10, '5'), EntryWithDigest("large", 100, '6')});
  const SurveyPlan plan = PlanSurvey(inventory, 40 + 80 + 79);
  EXPECT_THAT(plan.last, ElementsAre(0));
  EXPECT_EQ(plan.bytes_last_left_out, 400);
  ASSERT_THAT(plan.pairs, SizeIs(1));
  EXPECT_EQ(plan.pairs[0].first, 1);
  EXPECT_THAT(plan.pairs[0].tensors, ElementsAre(0));
  EXPECT_EQ(plan.bytes_pairs_left_out, 800 + 80 + 800);
  EXPECT_EQ(plan.pairs_cut, 2);
  EXPECT_LE(plan.bytes, 199);
}

TEST(PlanSurvey, ReadsNothingOfNothing) {
  EXPECT_EQ(PlanSurvey(TensorInventory(), 1000).bytes, 0);
  TensorInventory inventory;
  inventory.AddStep(1, std::vector{EntryWithDigest("a", 4, '1')});
  EXPECT_EQ(PlanSurvey(inventory, 0).bytes, 0);
  EXPECT_THAT(PlanSurvey(inventory, 1000).pairs, IsEmpty());
}

}  // namespace
}  // namespace tidemark::inspect
