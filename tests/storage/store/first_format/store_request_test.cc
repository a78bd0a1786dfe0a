#include "storage/store/first_format/store_request.h"

#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "storage/records/json_fields.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/records/checked_object.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

StoreRequest MakeRequest() {
  return {.kind = StoreRequest::Kind::kPin,
          .store = StoreId{{1, 2}},
          .step = 1000,
          .attempt = AttemptId{{3, 4}},
          .text = "the \"best\"\nof größe",
          .asker = "pid 7 on node-3, user anna",
          .asked = absl::FromUnixNanos(1'700'000'000'123'456'789)};
}

nlohmann::json GoodRequest() {
  nlohmann::json object = ParseJson(EncodeStoreRequest(MakeRequest()));
  object.erase("check");
  return object;
}

TEST(StoreRequest, SurvivesEncodingExactly) {
  using enum StoreRequest::Kind;
  for (const StoreRequest::Kind kind : {kPin, kUnpin, kDelete, kTag, kUntag}) {
    StoreRequest request = MakeRequest();
    request.kind = kind;
    if (kind == kTag || kind == kUntag) request.text = "paper/v1";
    const auto decoded = DecodeStoreRequest(EncodeStoreRequest(request));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->kind, kind);
    EXPECT_EQ(decoded->store, request.store);
    EXPECT_EQ(decoded->step, 1000);
    EXPECT_EQ(decoded->attempt, request.attempt);
    EXPECT_EQ(decoded->text, request.text);
    EXPECT_EQ(decoded->asker, request.asker);
    EXPECT_EQ(decoded->asked, request.asked);
    EXPECT_EQ(EncodeStoreRequest(*decoded), EncodeStoreRequest(request));
  }
}

TEST(StoreRequest, HasItsKindInWords) {
  for (const auto& [kind, name] :
       {std::pair(StoreRequest::Kind::kPin, "pin"), std::pair(StoreRequest::Kind::kUnpin, "unpin"),
        std::pair(StoreRequest::Kind::kDelete, "delete"), std::pair(StoreRequest::Kind::kTag, "tag"),
        std::pair(StoreRequest::Kind::kUntag, "untag")}) {
    StoreRequest request = MakeRequest();
    request.kind = kind;
    request.text = "a-name";
    EXPECT_EQ(ParseJson(EncodeStoreRequest(request))["request"], name);
  }
}

TEST(StoreRequest, ToTagNeedsAName) {
  for (const StoreRequest::Kind kind : {StoreRequest::Kind::kTag, StoreRequest::Kind::kUntag}) {
    nlohmann::json object = GoodRequest();
    object["request"] = RequestKindName(kind);
    for (const auto& [text, why] : {std::pair("", "a tag is empty"),
                                    std::pair("the best", "tag 'the best' has a character other than letters")}) {
      object["text"] = text;
      EXPECT_THAT(DecodeStoreRequest(WithCheck(object.dump())), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why)));
    }
  }
}

TEST(StoreRequest, HasRoomForTheLongestTextThatIsEscaped) {
  StoreRequest request = MakeRequest();
  request.text = std::string(kRequestTextBytesMax, '\x01');
  request.asker = std::string(kRequestAskerBytesMax, '\x01');
  const auto decoded = DecodeStoreRequest(EncodeStoreRequest(request));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->text, request.text);
}

TEST(StoreRequest, RefusesEachFieldThatIsMissingOrOfAnotherType) {
  const nlohmann::json good = GoodRequest();
  for (const auto& [name, value] : good.items()) {
    SCOPED_TRACE(name);
    nlohmann::json object = GoodRequest();
    object.erase(name);
    EXPECT_THAT(DecodeStoreRequest(WithCheck(object.dump())), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(name)));
    object = GoodRequest();
    object[name] = nlohmann::json::array();
    EXPECT_THAT(DecodeStoreRequest(WithCheck(object.dump())),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("request of")));
  }
}

TEST(StoreRequest, RefusesValuesOutOfTheirRange) {
  const auto expect = [](const std::string& name, const nlohmann::json& value, const std::string& why) {
    SCOPED_TRACE(name);
    nlohmann::json object = GoodRequest();
    object[name] = value;
    EXPECT_THAT(DecodeStoreRequest(WithCheck(object.dump())), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why)));
  };
  expect("request", "burn", "request 'burn' is unknown");
  expect("request", "\x1b[2J", "request '\\x1b[2J' is unknown");
  expect("step", -1, "a step is not a number >= 0");
  expect("step", 1e300, "a step is not a number >= 0");
  expect("attempt", "../../../../etc/passwd0000000000", "an id is not 32 hexadecimal digits");
  expect("store", "", "an id is not 32 hexadecimal digits");
  expect("text", std::string(kRequestTextBytesMax + 1, 'x'), "its text has 65537 bytes");
  expect("asker", std::string(kRequestAskerBytesMax + 1, 'x'), "its asker has 1025 bytes");
  expect("asked_unix_ns", std::numeric_limits<uint64_t>::max(), "is too large");
  expect("version", 0, "version 0 never existed");
}

TEST(StoreRequest, RefusesWhatIsTooLargeBeforeItLooks) {
  EXPECT_THAT(DecodeStoreRequest(std::string(kStoreRequestBytesMax + 1, ' ')),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("where at most 524288 are expected")));
}

TEST(StoreRequest, RefusesANewerVersionOnlyWhereTheCheckHolds) {
  nlohmann::json object = GoodRequest();
  object["version"] = 2;
  object["request"] = "something new";
  std::string bytes = WithCheck(object.dump());
  EXPECT_THAT(DecodeStoreRequest(bytes), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("has version 2")));
  bytes[3] ^= 1;
  EXPECT_THAT(DecodeStoreRequest(bytes), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("its check")));
}

TEST(StoreRequest, RefusesEveryTruncationAndEveryFlippedBit) {
  const std::string bytes = EncodeStoreRequest(MakeRequest());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(DecodeStoreRequest(bytes.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("check")));
  }
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_THAT(DecodeStoreRequest(flipped), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("check"))) << bit;
  }
}

TEST(StoreRequest, SurvivesRandomChangesUnderAValidCheck) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string good = GoodRequest().dump();
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    for (int change = 0; change < 3; ++change) text[random() % text.size()] = static_cast<char>(random());
    const auto request = DecodeStoreRequest(WithCheck(text));
    if (request.ok()) continue;
    EXPECT_TRUE(absl::IsDataLoss(request.status()) || absl::IsUnimplemented(request.status())) << request.status();
  }
}

TEST(StoreRequest, HasANameOfNumbersAndDigests) {
  const std::string name = RequestFileName({1000, AttemptId{{3, 4}}}, "x");
  EXPECT_TRUE(IsRequestFileName(name)) << name;
  for (const std::string& other : {std::string(), std::string("request-"), std::string("request-.json"), name.substr(8),
                                   name + "x", name.substr(0, name.size() - 6) + ".json", "request-x" + name.substr(8),
                                   "../" + name, std::string("request-1000-") + name.substr(19)}) {
    EXPECT_FALSE(IsRequestFileName(other)) << other;
  }
}

}  // namespace
}  // namespace tidemark::storage
