#include "bench/report.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark::bench {
namespace {

using ::testing::HasSubstr;

std::vector<Outcome> MadeUpOutcomes() {
  Outcome met{.row = {"small", "a ÷ b", 1.10, Better::kLower}, .seconds = 2.5};
  met.measurement = Measurement{
      .ratio = 1.1, .numerator = 0.0613, .denominator = 0.0557, .unit = Unit::kSeconds, .ratios = {1.2, 1.1, 1.0}};
  Outcome missed{.row = {"fast", "c ÷ d", 0.95, Better::kHigher}};
  missed.measurement = Measurement{
      .ratio = 0.9496, .numerator = 1.9e9, .denominator = 2e9, .unit = Unit::kBytesPerSecond, .ratios = {0.9496}};
  Outcome skipped{.row = {"elsewhere", "e ÷ f", 2, Better::kHigher}, .skipped = "no GPU"};
  Outcome failed{.row = {"broken", "g ÷ h", 3, Better::kLower}, .error = absl::DataLossError("a bit flipped")};
  return {met, missed, skipped, failed};
}

TEST(FormatTable, ShowsWhatIsMetWhatIsNotAndWhyThereIsNothing) {
  EXPECT_EQ(FormatTable(MadeUpOutcomes()),
            "| row       | compared | ratio | goal   | met     | measured              |\n"
            "|-----------|----------|-------|--------|---------|-----------------------|\n"
            "| small     | a ÷ b    | 1.100 | ≤ 1.1  | met     | 61.3 ms ÷ 55.7 ms     |\n"
            "| fast      | c ÷ d    | 0.950 | ≥ 0.95 | not met | 1.90 GB/s ÷ 2.00 GB/s |\n"
            "| elsewhere | e ÷ f    |       | ≥ 2    | skipped | no GPU                |\n"
            "| broken    | g ÷ h    |       | ≤ 3    | failed  | a bit flipped         |\n");
}

std::vector<GrowthSeries> MadeUpGrowth() {
  return {{.axis = "state bytes", .quantity = "blocked", .sizes = {1 << 20, 4 << 20}, .values = {0.5, 2}},
          {.axis = "state bytes",
           .quantity = "memory",
           .unit = Unit::kBytes,
           .sizes = {1 << 20, 4 << 20},
           .values = {3 << 20, 6 << 20}},
          {.axis = "steps", .quantity = "ls", .sizes = {10, 1000}, .values = {0.25, 0.25}}};
}

TEST(LastExponent, IsOneForAStraightLineAndZeroForWhatStaysTheSame) {
  const std::vector<GrowthSeries> growth = MadeUpGrowth();
  EXPECT_DOUBLE_EQ(LastExponent(growth[0]), 1);
  EXPECT_DOUBLE_EQ(LastExponent(growth[1]), 0.5);
  EXPECT_DOUBLE_EQ(LastExponent(growth[2]), 0);
}

TEST(FormatGrowthTables, HasATableForEachAxis) {
  EXPECT_EQ(FormatGrowthTables(MadeUpGrowth()),
            "| state bytes | 1.00 MiB | 4.00 MiB | last exponent |\n"
            "|-------------|----------|----------|---------------|\n"
            "| blocked     | 500 ms   | 2.00 s   | 1.00          |\n"
            "| memory      | 3.00 MiB | 6.00 MiB | 0.50          |\n"
            "\n"
            "| steps | 10     | 1000   | last exponent |\n"
            "|-------|--------|--------|---------------|\n"
            "| ls    | 250 ms | 250 ms | 0.00          |\n");
}

TEST(FormatGrowthJson, HasAnObjectForEachSeries) {
  const auto growth = nlohmann::json::parse(FormatGrowthJson(MadeUpGrowth(), {.seed = 7}));
  EXPECT_EQ(growth["conditions"]["seed"], 7);
  ASSERT_EQ(growth["series"].size(), 3u);
  const auto& memory = growth["series"][1];
  EXPECT_EQ(memory["axis"], "state bytes");
  EXPECT_EQ(memory["quantity"], "memory");
  EXPECT_EQ(memory["unit"], "B");
  EXPECT_EQ(memory["sizes"], (std::vector<double>{1 << 20, 4 << 20}));
  EXPECT_EQ(memory["values"], (std::vector<double>{3 << 20, 6 << 20}));
  EXPECT_DOUBLE_EQ(memory["last_exponent"], 0.5);
}

TEST(FormatJson, HasAnObjectForEachRow) {
  const Conditions conditions{
      .machine = {.cpu = "a CPU", .cores = 2, .memory_bytes = 1 << 30, .kernel = "Linux 6", .file_system = "ext4 on x"},
      .build = "Tidemark 1",
      .seed = 7,
      .size_mib = 16};
  const auto rows = nlohmann::json::parse(FormatJson(MadeUpOutcomes(), conditions));
  ASSERT_EQ(rows.size(), 4u);

  EXPECT_EQ(rows[0]["name"], "small");
  EXPECT_EQ(rows[0]["ratio"], 1.1);
  EXPECT_EQ(rows[0]["goal"], 1.1);
  EXPECT_EQ(rows[0]["better"], "lower");
  EXPECT_EQ(rows[0]["met"], true);
  EXPECT_EQ(rows[0]["numerator"], 0.0613);
  EXPECT_EQ(rows[0]["denominator"], 0.0557);
  EXPECT_EQ(rows[0]["unit"], "s");
  EXPECT_EQ(rows[0]["pairs"], 3);
  EXPECT_EQ(rows[0]["seconds"], 2.5);
  EXPECT_TRUE(rows[0]["skipped"].is_null());
  EXPECT_TRUE(rows[0]["error"].is_null());
  EXPECT_EQ(rows[0]["conditions"]["kernel"], "Linux 6");
  EXPECT_EQ(rows[0]["conditions"]["seed"], 7);

  EXPECT_EQ(rows[1]["better"], "higher");
  EXPECT_EQ(rows[1]["met"], false);
  EXPECT_EQ(rows[1]["unit"], "B/s");

  EXPECT_EQ(rows[2]["skipped"], "no GPU");
  EXPECT_TRUE(rows[2]["ratio"].is_null());
  EXPECT_TRUE(rows[2]["met"].is_null());

  EXPECT_THAT(rows[3]["error"].get<std::string>(), HasSubstr("a bit flipped"));
  EXPECT_TRUE(rows[3]["met"].is_null());
}

TEST(FormatConditions, NamesTheMachineAndTheData) {
  const std::string text = FormatConditions(
      {.machine =
           {.cpu = "a CPU", .cores = 2, .memory_bytes = uint64_t{8} << 30, .kernel = "Linux 6", .file_system = "xfs"},
       .build = "Tidemark 1",
       .seed = 7,
       .size_mib = 16,
       .caches_dropped_by_root = true});
  EXPECT_THAT(text, HasSubstr("a CPU, 2 cores, 8.00 GiB of memory\n"));
  EXPECT_THAT(text, HasSubstr("seed 7, 16 MiB for a GiB\n"));
  EXPECT_THAT(text, HasSubstr("all of the page cache\n"));
}

TEST(FormatQuantity, HasThreeDigitsAndAPrefix) {
  EXPECT_EQ(FormatQuantity(12.34, Unit::kSeconds), "12.3 s");
  EXPECT_EQ(FormatQuantity(0.000118, Unit::kSeconds), "118 µs");
  EXPECT_EQ(FormatQuantity(0, Unit::kSeconds), "0.00 µs");
  EXPECT_EQ(FormatQuantity(740e6, Unit::kBytesPerSecond), "740 MB/s");
  EXPECT_EQ(FormatQuantity(1.5 * (1 << 20), Unit::kBytes), "1.50 MiB");
}

TEST(IsMet, TakesTheGoalItselfForMet) {
  EXPECT_TRUE(IsMet({.goal = 2, .better = Better::kLower}, 2));
  EXPECT_FALSE(IsMet({.goal = 2, .better = Better::kLower}, 2.001));
  EXPECT_TRUE(IsMet({.goal = 2, .better = Better::kHigher}, 2));
  EXPECT_FALSE(IsMet({.goal = 2, .better = Better::kHigher}, 1.999));
}

}  // namespace
}  // namespace tidemark::bench
