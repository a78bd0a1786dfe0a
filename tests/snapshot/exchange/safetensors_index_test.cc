#include "snapshot/exchange/safetensors_index.h"

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "snapshot/exchange/safetensors_header.h"

namespace tidemark {
namespace {

using testing::HasSubstr;

void ExpectIndexRefused(std::string_view text, std::string_view message) {
  const absl::Status status = DecodeSafetensorsIndex(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(message))) << text;
}

TEST(SafetensorsIndex, GoesThroughItsText) {
  const SafetensorsFiles files = {{"a\n", "model-00001-of-00002.safetensors"},
                                  {"b", "model-00002-of-00002.safetensors"}};
  const auto again = DecodeSafetensorsIndex(EncodeSafetensorsIndex(files, 1234));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, files);
  EXPECT_TRUE(DecodeSafetensorsIndex(EncodeSafetensorsIndex({}, 0)).ok());
}

TEST(SafetensorsIndex, SkipsWhatElseItSays) {
  const auto files =
      DecodeSafetensorsIndex(R"({"metadata":{"total_size":1.5e9,"weight_map":[{"a":null},[true,-1]]},"x":"y","z":null,)"
                             R"("weight_map":{"w":"f"},"more":[[],{}]})");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(*files, (SafetensorsFiles{{"w", "f"}}));
}

TEST(SafetensorsIndex, RefusesWhatIsNone) {
  ExpectIndexRefused("{}", "it has no 'weight_map'");
  ExpectIndexRefused("", "expected '{' as its first byte");
  ExpectIndexRefused(R"({"weight_map":[]})", "'weight_map': expected an object, found an array");
  ExpectIndexRefused(R"({"weight_map":5})", "'weight_map': expected an object, found a number");
  ExpectIndexRefused(R"({"weight_map":"f"})", "'weight_map': expected an object, found a string");
  ExpectIndexRefused(R"({"weight_map":{"w":1}})", "tensor 'w': expected a file name, found a number");
  ExpectIndexRefused(R"({"weight_map":{"w":["f"]}})", "tensor 'w': expected a file name, found an array");
  ExpectIndexRefused(R"({"weight_map":{"w":{}}})", "tensor 'w': expected a file name, found an object");
  ExpectIndexRefused(R"({"weight_map":{}},)", "parse error");
}

TEST(SafetensorsIndex, RefusesKeysThatComeTwice) {
  ExpectIndexRefused(R"({"weight_map":{"w":"f","w":"g"}})", "tensor 'w' is there twice");
  ExpectIndexRefused(R"({"weight_map":{},"weight_map":{}})", "'weight_map' is there twice");
}

TEST(SafetensorsIndex, RefusesNamesThatLeadAway) {
  for (const char* name : {"", ".", "..", "../f", "/etc/passwd", "a/b", "a\\u0000b"}) {
    ExpectIndexRefused(fmt::format(R"({{"weight_map":{{"w":"{}"}}}})", name), "which is not a plain file name");
  }
  ExpectIndexRefused(fmt::format(R"({{"weight_map":{{"w":"{}"}}}})", std::string(256, 'f')), "not a plain file name");
}

TEST(SafetensorsIndex, RefusesMoreNamesThanAReaderTakes) {
  std::string text = R"({"weight_map":{)";
  for (size_t i = 0; i <= kSafetensorsTensorsMax; ++i) text += fmt::format("\"{}\":\"f\",", i);
  text.back() = '}';
  ExpectIndexRefused(text + "}", "it names more than 262144 tensors");
}

TEST(SafetensorsIndex, NestingIsSkippedWithoutGoingIntoIt) {
  ExpectIndexRefused("{\"a\":" + std::string(1'000'000, '['), "parse error");
}

}  // namespace
}  // namespace tidemark
