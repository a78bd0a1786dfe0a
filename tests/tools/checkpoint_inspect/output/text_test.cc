#include "tools/checkpoint_inspect/output/text.h"

#include <limits>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using std::string_literals::operator""s;

TEST(Escape, LeavesPlainTextAlone) {
  EXPECT_EQ(Escape("model.layers.0 größe 重み \\n"), "model.layers.0 größe 重み \\n");
}

TEST(Escape, WritesControlCharactersOut) {
  EXPECT_EQ(Escape("a\nb\tc\rd\x1b[31m\x7f"s + "\0"s), "a\\nb\\tc\\rd\\x1b[31m\\x7f\\x00");
}

TEST(Escape, WritesC1ControlsOut) {
  EXPECT_EQ(Escape("a\xc2\x9b"
                   "31m"),
            "a\\x9b31m");
}

TEST(Escape, WritesDirectionMarksAndLineSeparatorsOut) {
  EXPECT_EQ(Escape("a\u202eb\u2066c\u2028"), "a\\u{202e}b\\u{2066}c\\u{2028}");
}

TEST(Escape, WritesBytesThatAreNotUtf8Out) {
  EXPECT_EQ(Escape("\xff"), "\\xff");
  EXPECT_EQ(Escape("\xc0\x8a"), "\\xc0\\x8a");                    // newline in too many bytes
  EXPECT_EQ(Escape("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a surrogate pair
  EXPECT_EQ(Escape("\xe2\x82"), "\\xe2\\x82");                    // cut short
  EXPECT_EQ(Escape("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // past the last code point
}

TEST(DisplayWidth, CountsCodePoints) {
  EXPECT_EQ(DisplayWidth(""), 0u);
  EXPECT_EQ(DisplayWidth("größe"), 5u);
  EXPECT_EQ(DisplayWidth("…€𝄞"), 3u);
}

TEST(Shorten, MarksWhatItCutOff) {
  EXPECT_EQ(Shorten("größe", 5), "größe");
  EXPECT_EQ(Shorten("größen", 5), "größ…");
}

TEST(HumanBytes, PicksTheUnit) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(uint64_t{20} << 30), "20.0 GiB");
  EXPECT_EQ(HumanBytes(std::numeric_limits<uint64_t>::max()), "16.0 EiB");
}

TEST(ShareText, HasPlainDigitsHoweverSmallItIs) {
  EXPECT_EQ(ShareText(1, 1), "100 %");
  EXPECT_EQ(ShareText(0.124, 1), "12 %");
  EXPECT_EQ(ShareText(3, 1000), "0.3 %");
  EXPECT_EQ(ShareText(1, 10'000), "0.01 %");
  EXPECT_EQ(ShareText(4, 10'000'000), "under 0.01 %");
  EXPECT_EQ(ShareText(1e-300, 1), "under 0.01 %");
  EXPECT_EQ(ShareText(0, 1), "0 %");
  EXPECT_EQ(ShareText(0, 0), "-");
}

TEST(ReusedShare, IsThatOfAllBytesOfTheStep) {
  EXPECT_EQ(ReusedShare(90, 10), "90 %");
  EXPECT_EQ(ReusedShare(1, 1 << 20), "under 0.01 %");
  EXPECT_EQ(ReusedShare(0, 8192), "0 %");
  EXPECT_EQ(ReusedShare(0, 0), "-");
}

TEST(Ratio, IsStoredToLogical) {
  EXPECT_EQ(Ratio(100, 67), "0.67");
  EXPECT_EQ(Ratio(1 << 20, 1), "under 0.01");
  EXPECT_EQ(Ratio(1 << 20, 0), "0.00");
  EXPECT_EQ(Ratio(0, 8192), "-");
}

TEST(Age, PicksTheUnit) {
  EXPECT_EQ(Age(absl::Milliseconds(900)), "0 s");
  EXPECT_EQ(Age(absl::Seconds(59)), "59 s");
  EXPECT_EQ(Age(absl::Minutes(59)), "59 min");
  EXPECT_EQ(Age(absl::Hours(47)), "47 h");
  EXPECT_EQ(Age(absl::Hours(49)), "2 d");
}

TEST(Age, IsUnknownForATimeAheadOfTheClock) {
  EXPECT_EQ(Age(-absl::Milliseconds(500)), "0 s");
  EXPECT_EQ(Age(-absl::Seconds(5)), "-");
}

TEST(HumanDuration, PicksTheUnit) {
  EXPECT_EQ(HumanDuration(absl::Microseconds(1250)), "1.2 ms");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(1500)), "1.50 s");
}

TEST(Rfc3339, IsUtc) {
  EXPECT_EQ(Rfc3339(absl::FromUnixMillis(1'700'000'000'250)), "2023-11-14T22:13:20.25Z");
  EXPECT_EQ(Rfc3339(absl::FromUnixSeconds(1'700'000'000)), "2023-11-14T22:13:20Z");
}

TEST(MetricsText, NamesWhatIsNoNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(MetricsText({}), "-");
  EXPECT_EQ(
      MetricsText({{"a", 0.25}, {"b", std::numeric_limits<double>::quiet_NaN()}, {"c", infinity}, {"d", -infinity}}),
      "a=0.25 b=NaN c=Infinity d=-Infinity");
  EXPECT_EQ(MetricsText({{"evil\x1b", 1}}), "evil\\x1b=1");
}

TEST(MetricsText, BeginsWithWhatAStepIsJudgedBy) {
  const std::map<std::string, double> metrics = {{"a", 1}, {"bench/x", 2}, {"loss", 3}, {"validation/loss", 4}};
  EXPECT_EQ(MetricsText(metrics), "bench/x=2 validation/loss=4 a=1 loss=3");
  EXPECT_EQ(MetricsText(metrics, "loss"), "loss=3 bench/x=2 validation/loss=4 a=1");
  EXPECT_EQ(MetricsText(metrics, "validation/loss"), "validation/loss=4 bench/x=2 a=1 loss=3");
  EXPECT_EQ(MetricsText(metrics, "none"), MetricsText(metrics));
}

TEST(ShapeText, TellsTheHeldPart) {
  EXPECT_EQ(ShapeText({.shape = {}}), "[]");
  EXPECT_EQ(ShapeText({.shape = {512, 128}}), "[512, 128]");
  EXPECT_EQ(ShapeText({.shape = {512, 128}, .box_offset = {256, 0}, .box_extent = {256, 128}}),
            "[512, 128] held [256:512, 0:128]");
}

TEST(TypeText, IsTheDtypeOfTensorsAndTheKindOfTheRest) {
  EXPECT_EQ(TypeText({.kind = EntryKind::kTensor, .dtype = Dtype::kBfloat16}), "bfloat16");
  EXPECT_EQ(TypeText({.kind = EntryKind::kString}), "string");
}

TEST(Text, ParsesSharesInPercent) {
  EXPECT_EQ(ParsePercentage("10%"), 0.1);
  EXPECT_EQ(ParsePercentage("0%"), 0.0);
  EXPECT_EQ(ParsePercentage("0.5%"), 0.005);
  EXPECT_EQ(ParsePercentage("100%"), 1.0);
  for (const char* text : {"", "%", "10", "10 %", "-1%", "100.1%", "nan%", "inf%", "x%", "1%%"}) {
    EXPECT_EQ(ParsePercentage(text), std::nullopt) << text;
  }
}

TEST(TakeLine, TakesTheWordsThatFit) {
  const auto lines = [](std::string_view text, size_t columns) {
    std::vector<std::string> taken;
    while (!text.empty()) taken.emplace_back(TakeLine(&text, columns));
    return taken;
  };
  EXPECT_THAT(lines("one two  three", 7), testing::ElementsAre("one two", "three"));
  EXPECT_THAT(lines("  one two", 6), testing::ElementsAre("  one", "two"));
  EXPECT_THAT(lines("a-long-word b", 4), testing::ElementsAre("a-long-word", "b"));
  EXPECT_THAT(lines("größe x ", 7), testing::ElementsAre("größe x"));
  EXPECT_THAT(lines("   ", 7), testing::ElementsAre(""));
}

TEST(ShortenAtWord, CutsBehindAWordWhereOneFits) {
  EXPECT_EQ(ShortenAtWord("loss=1 rate=2", 13), "loss=1 rate=2");
  EXPECT_EQ(ShortenAtWord("loss=1 rate=2", 12), "loss=1 …");
  EXPECT_EQ(ShortenAtWord("loss=1 rate=2", 7), "loss=1…");
  EXPECT_EQ(ShortenAtWord("validation/loss=1", 8), "validat…");
}

}  // namespace
}  // namespace tidemark::inspect
