#include "tools/checkpoint_inspect/cli/metric_choice.h"

#include "gtest/gtest.h"

namespace tidemark::inspect {
namespace {

void Expect(std::string_view text, std::string_view name, std::optional<BestMode> mode) {
  const MetricChoice choice = ParseMetricChoice(text);
  EXPECT_EQ(choice.name, name) << text;
  EXPECT_EQ(choice.mode, mode) << text;
}

TEST(ParseMetricChoice, TakesTheModeFromTheEnd) {
  Expect("loss", "loss", std::nullopt);
  Expect("validation/accuracy:highest", "validation/accuracy", BestMode::kHighest);
  Expect("validation/loss:lowest", "validation/loss", BestMode::kLowest);
  Expect("a:b", "a:b", std::nullopt);
  Expect("a:lowest:highest", "a:lowest", BestMode::kHighest);
  Expect("highest", "highest", std::nullopt);
}

TEST(ParseMetricChoice, HasNoNameWhereThereIsNone) {
  Expect("", "", std::nullopt);
  Expect(":highest", "", std::nullopt);
}

}  // namespace
}  // namespace tidemark::inspect
