#include "tools/checkpoint_inspect/output/json.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "storage/records/c_locale.h"

namespace tidemark::inspect {
namespace {

// As tests/tools/checkpoint_inspect/inspect_testing.h has it, with the fields in their order.
Json Parsed(std::string_view text) {
  const storage::CLocale locale;
  return Json::parse(text);
}

TEST(MetadataToJson, IsAnObjectOrNull) {
  EXPECT_EQ(MetadataToJson(R"({"run": {"id": 7}})"), Parsed(R"({"run": {"id": 7}})"));
  EXPECT_EQ(MetadataToJson("{}"), Json::object());
  EXPECT_EQ(MetadataToJson("[1]"), nullptr);
  EXPECT_EQ(MetadataToJson("{"), nullptr);
}

TEST(MetadataToJson, RefusesWhatNestsWithoutEnd) {
  const auto nested = [](size_t depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(MetadataToJson(nested(kMetadataDepthMax)).is_object());
  EXPECT_EQ(MetadataToJson(nested(kMetadataDepthMax + 1)), nullptr);
  EXPECT_EQ(MetadataToJson(nested(1'000'000)), nullptr);
}

// An object of so many keys.
std::string Keys(size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\"a:\\\":\"";
  return text + "}";
}

TEST(MetadataToJson, RefusesMoreKeysThanAreFoundQuickly) {
  EXPECT_EQ(MetadataToJson(Keys(kMetadataKeysMax)).size(), kMetadataKeysMax);
  EXPECT_EQ(MetadataToJson(Keys(kMetadataKeysMax + 1)), nullptr);
  // Those of all objects count together.
  EXPECT_TRUE(MetadataToJson("{\"a\":" + Keys(kMetadataKeysMax - 2) + ",\"b\":{}}").is_object());
  EXPECT_EQ(MetadataToJson("{\"a\":" + Keys(kMetadataKeysMax - 1) + ",\"b\":{}}"), nullptr);
  EXPECT_EQ(MetadataLimits(), "8192 keys, 32768 values and a depth of 256");
}

// An object with this text so often in an array: two values besides those.
std::string Array(const std::string& value, size_t count) {
  std::string text = "{\"a\":[";
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + value;
  return text + "]}";
}

TEST(MetadataToJson, RefusesMoreValuesThanThereIsMemoryFor) {
  for (const char* value :
       {"[]", "{}", "[ ]", "0", "-1.5e+3", "true", "null", "\"\"", R"("[,],:\"\\")", " 7 ", "\t7\r\n"}) {
    SCOPED_TRACE(value);
    EXPECT_EQ(MetadataToJson(Array(value, kMetadataValuesMax - 2)).at("a").size(), kMetadataValuesMax - 2);
    EXPECT_EQ(MetadataToJson(Array(value, kMetadataValuesMax - 1)), nullptr);
  }
  for (const char* two : {"[0]", "[\"\"]", "[[]]", "[{}]", "[false]", "[ -1 ]"}) {
    SCOPED_TRACE(two);
    EXPECT_TRUE(MetadataToJson(Array(two, kMetadataValuesMax / 2 - 1)).is_object());
    EXPECT_EQ(MetadataToJson(Array(two, kMetadataValuesMax / 2)), nullptr);
  }
  // A key is none.
  EXPECT_TRUE(MetadataToJson(Array(R"({"k":0})", kMetadataKeysMax - 1)).is_object());
  std::string keys = Keys(kMetadataKeysMax - 1);
  keys.back() = ',';
  keys += "\"last\":" + Array("0", kMetadataValuesMax - kMetadataKeysMax - 1).substr(5);
  EXPECT_TRUE(MetadataToJson(keys).is_object());
}

// The least processor time of several conversions, which leaves out most of what other processes cost.
double SecondsToConvert(int metrics) {
  StepInfo info;
  for (int i = 0; i < metrics; ++i) info.metrics["metric/" + std::to_string(1'000'000 + i)] = i;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const std::clock_t begin = std::clock();
    const Json json = ToJson(info);
    least = std::min(least, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    EXPECT_EQ(json.at("metrics").size(), info.metrics.size());
    EXPECT_EQ(json.at("metrics").at("metric/1000007"), 7.0);
  }
  return least;
}

// The time depends on the machine, its growth does not: 4 times as many metrics take 4 times as long, and 16 times
// where each is looked for among the others.
TEST(StepToJson, TakesNoTimeThatGrowsWithTheSquareOfItsMetrics) {
  EXPECT_LT(SecondsToConvert(80'000), 10 * SecondsToConvert(20'000));
}

TEST(StepToJson, KeepsNumbersThatJsonLacksAsStrings) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Json json = ToJson(StepInfo{
      .metrics = {{"a", std::numeric_limits<double>::quiet_NaN()}, {"b", infinity}, {"c", -infinity}, {"d", 0.1}}});
  EXPECT_EQ(json["metrics"], Parsed(R"({"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 0.1})"));
}

TEST(StepToJson, HasNoTimeWhereItIsNotKnown) {
  EXPECT_EQ(ToJson(StepInfo{.created = absl::UnixEpoch()})["created"], nullptr);
  EXPECT_EQ(ToJson(StepInfo{.created = absl::FromUnixSeconds(1)})["created"], "1970-01-01T00:00:01Z");
}

TEST(StepToJson, TellsWhatEvaluatorsSaidAndWhyItStays) {
  const Json json = ToJson(StepInfo{.evaluations = {{.evaluator = "validation",
                                                     .worker = "w",
                                                     .outcome = Evaluation::Outcome::kFailed,
                                                     .reason = "no data",
                                                     .metrics = {{"loss", std::numeric_limits<double>::infinity()}},
                                                     .unhealthy = "diverged",
                                                     .reported = absl::FromUnixSeconds(1),
                                                     .took = absl::Milliseconds(1500)}},
                                    .pinned = true,
                                    .pin_note = "paper",
                                    .tags = {"a", "b"},
                                    .kept = "pinned"});
  EXPECT_EQ(json["evaluations"], Parsed(R"([{"evaluator": "validation", "outcome": "failed", "reason": "no data",
                                                  "metrics": {"loss": "Infinity"}, "unhealthy": "diverged",
                                                  "worker": "w", "reported": "1970-01-01T00:00:01Z", "seconds": 1.5}])"));
  EXPECT_EQ(json["unhealthy"], "validation: diverged");
  EXPECT_EQ(json["pinned"], true);
  EXPECT_EQ(json["pin_note"], "paper");
  EXPECT_EQ(json["tags"], Parsed(R"(["a", "b"])"));
  EXPECT_EQ(json["kept"], "pinned");
}

TEST(EntryToJson, TellsTheHeldBox) {
  StoredEntry entry;
  entry.spec = {.name = "w", .dtype = Dtype::kFloat32, .shape = {4, 2}, .box_offset = {2, 0}, .box_extent = {2, 2}};
  EXPECT_EQ(ToJson(entry)["box"], Parsed(R"({"offset": [2, 0], "extent": [2, 2]})"));
}

TEST(Dump, IsAscii) { EXPECT_EQ(Dump(Json("ö\x1b\x7f\xc2\x9b")), "\"\\u00f6\\u001b\\u007f\\u009b\"\n"); }

TEST(Dump, ReplacesWhatIsNotUtf8) { EXPECT_EQ(Dump(Json("a\xff")), "\"a\\ufffd\"\n"); }

TEST(Json, WritesALineWithoutLineEnds) {
  EXPECT_EQ(DumpLine({{"a", "x\ny"}, {"b", {1, "\xff"}}}), "{\"a\":\"x\\ny\",\"b\":[1,\"\\ufffd\"]}\n");
}

TEST(Json, PrintsAnArrayPieceByPieceAsItWouldAsAWhole) {
  const Json elements[] = {{{"step", 1}, {"name", "a\nb"}}, 7, Json::array(), {{"empty", Json::object()}}};
  for (size_t count = 0; count <= std::size(elements); ++count) {
    Json whole = {{"schema_version", 1}, {"store", {{"id", "x"}}}};
    char* text = nullptr;
    size_t size = 0;
    std::FILE* out = open_memstream(&text, &size);
    Console console(out, stderr);
    PrintWithArray(console, whole, "steps", [&](const auto& add) {
      for (size_t i = 0; i < count; ++i) add(elements[i]);
    });
    std::fclose(out);
    whole["steps"] = Json::array();
    for (size_t i = 0; i < count; ++i) whole["steps"].push_back(elements[i]);
    EXPECT_EQ(std::string(text, size), Dump(whole));
    std::free(text);
  }
}

}  // namespace
}  // namespace tidemark::inspect
