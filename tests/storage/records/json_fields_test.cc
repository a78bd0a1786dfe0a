#include "storage/records/json_fields.h"

#include <clocale>
#include <cmath>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

// What `decode` says that is wrong; empty if nothing is.
std::string Refusal(const std::function<void()>& decode) {
  try {
    decode();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(JsonFields, KeepNumbersThatJsonLacks) {
  for (double value : {0.1, -0.0, 1e308, 5e-324}) EXPECT_EQ(DecodeNumber(EncodeNumber(value)), value);
  EXPECT_EQ(EncodeNumber(-std::numeric_limits<double>::infinity()), Json("-Infinity"));
  EXPECT_EQ(DecodeNumber("Infinity"), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(DecodeNumber(EncodeNumber(std::nan("")))));
  EXPECT_EQ(Refusal([] { DecodeNumber("infinity"); }), "'infinity' is not a number");
  EXPECT_EQ(Refusal([] { DecodeNumber(true); }), "boolean is not a number");
}

// Under the test preset asan in another locale.
TEST(JsonFields, HaveAPointInNumbersWhateverTheLocale) {
  const std::string point = std::localeconv()->decimal_point;
  EXPECT_EQ(ParseJson(R"({"loss":0.25})").at("loss").get<double>(), 0.25);
  EXPECT_EQ(ParseJson("-1.5e-3").get<double>(), -0.0015);
  EXPECT_EQ(DumpJson(JsonObject("loss", 0.25)), R"({"loss":0.25})");
  EXPECT_TRUE(IsJson("[0.25]"));
  EXPECT_FALSE(IsJson("[0.25"));
  EXPECT_EQ(std::localeconv()->decimal_point, point) << "the thread's locale is as it was";
}

TEST(JsonFields, RefuseWholeNumbersOutOfTheirRange) {
  EXPECT_EQ(DecodeInt64(std::numeric_limits<int64_t>::min()), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Refusal([] { DecodeInt64(1.0); }), "a number is not whole");
  EXPECT_EQ(Refusal([] { DecodeInt64(uint64_t{1} << 63); }), "9223372036854775808 is too large");
  EXPECT_EQ(Refusal([] { DecodeUnsigned<uint32_t>(uint64_t{1} << 32); }), "4294967296 is too large");
  EXPECT_EQ(Refusal([] { DecodeUnsigned<uint32_t>(-1); }), "a count is not an unsigned number");
  EXPECT_EQ(Refusal([] { DecodeStep(-1); }), "a step is not a number >= 0");
  EXPECT_EQ(Refusal([] { DecodeId<StoreId>("12"); }), "an id is not 32 hexadecimal digits");
}

TEST(DecodeJson, TurnsWhatIsThrownIntoAStatus) {
  const auto decode = [](const Json& json) { return DecodeStep(json.at("step")); };
  const auto run = [&](std::string_view bytes) { return DecodeJson<int64_t>("thing", bytes, 2, decode); };
  EXPECT_EQ(*run(R"({"version": 2, "step": 7})"), 7);
  EXPECT_THAT(run("{"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("thing of 1 bytes: ")));
  EXPECT_THAT(run(R"({"version": 1})"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'step'")));
  EXPECT_THAT(run(R"({"version": 1.5, "step": 7})"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("whole")));
  EXPECT_THAT(run(R"({"version": 3})"),
              StatusIs(absl::StatusCode::kUnimplemented, "thing has version 3; this library reads up to 2"));
}

TEST(DecodeJson, SaysNothingAboutTheBytesWhereThereIsNoMemory) {
  const auto decode = [](const Json&) -> int64_t { throw std::bad_alloc(); };
  EXPECT_THAT(DecodeJson<int64_t>("thing", R"({"version": 1})", 1, decode),
              StatusIs(absl::StatusCode::kResourceExhausted, "thing: the system has no memory"));
}

TEST(JsonObject, HasTheFieldsThatAreGiven) {
  EXPECT_EQ(DumpJson(JsonObject("b", 1, "a", JsonObject("list", Json::array()))), R"({"a":{"list":[]},"b":1})");
}

}  // namespace
}  // namespace tidemark::storage
