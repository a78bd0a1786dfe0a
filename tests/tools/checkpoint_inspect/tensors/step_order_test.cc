#include "tools/checkpoint_inspect/tensors/step_order.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::inspect {
namespace {

using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(StepOrder, IsParsed) {
  EXPECT_EQ(*ParseStepOrder("step"), StepOrder{.key = StepOrder::Key::kStep});
  EXPECT_EQ(*ParseStepOrder("age"), StepOrder{.key = StepOrder::Key::kAge});
  EXPECT_EQ(*ParseStepOrder("size"), StepOrder{.key = StepOrder::Key::kSize});
  EXPECT_EQ(*ParseStepOrder("metric:validation/loss"),
            (StepOrder{.key = StepOrder::Key::kMetric, .metric = "validation/loss"}));
  for (const char* text : {"", "loss", "metric:", "metric", "Step"}) {
    EXPECT_THAT(ParseStepOrder(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("metric:NAME"))) << text;
  }
}

std::vector<int64_t> Arranged(const StepOrder& order, const std::vector<StepInfo>& steps) {
  std::vector<const StepInfo*> pointers;
  for (const StepInfo& info : steps) pointers.push_back(&info);
  Arrange(order, pointers);
  std::vector<int64_t> numbers;
  for (const StepInfo* info : pointers) numbers.push_back(info->step);
  return numbers;
}

TEST(StepOrder, PutsTheLargestLastAndKeepsEqualOnesAscending) {
  const absl::Time time = absl::FromUnixSeconds(1'700'000'000);
  const std::vector<StepInfo> steps = {
      {.step = 1, .created = time + absl::Hours(2), .metrics = {{"loss", 3}}, .stored_bytes = 7},
      {.step = 2, .created = time, .metrics = {{"loss", -std::numeric_limits<double>::infinity()}}, .stored_bytes = 9},
      {.step = 3, .created = absl::UnixEpoch(), .metrics = {{"loss", std::nan("")}}, .stored_bytes = 7},
      {.step = 4, .created = time, .stored_bytes = 0}};
  EXPECT_THAT(Arranged({.key = StepOrder::Key::kStep}, steps), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Arranged({.key = StepOrder::Key::kAge}, steps), ElementsAre(3, 2, 4, 1));
  EXPECT_THAT(Arranged({.key = StepOrder::Key::kSize}, steps), ElementsAre(4, 1, 3, 2));
  EXPECT_THAT(Arranged({.key = StepOrder::Key::kMetric, .metric = "loss"}, steps), ElementsAre(4, 3, 2, 1));
}

}  // namespace
}  // namespace tidemark::inspect
