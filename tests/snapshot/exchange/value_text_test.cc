#include "snapshot/exchange/value_text.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"

namespace tidemark {
namespace {

template <typename T>
std::string TextOf(EntryKind kind, T value) {
  return ValueText({.kind = kind}, std::as_bytes(std::span(&value, 1)));
}

TEST(ValueText, IsExact) {
  EXPECT_EQ(TextOf(EntryKind::kInt64, INT64_MIN), "-9223372036854775808");
  EXPECT_EQ(TextOf(EntryKind::kDouble, 0.1), "0.1");
  EXPECT_EQ(TextOf(EntryKind::kBool, uint8_t{1}), "true");
}

TEST(ValueText, NumbersComeBackBitByBit) {
  for (const double number : {0.0, -0.0, 0.1, 1.0 / 3, -1e300, 5e-324, std::numeric_limits<double>::max(),
                              std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    const auto value = ParseValueText(EntryKind::kDouble, TextOf(EntryKind::kDouble, number));
    ASSERT_TRUE(value.has_value()) << number;
    EXPECT_EQ(std::memcmp(value->bytes.data(), &number, sizeof(number)), 0) << number;
  }
  for (const int64_t number : {int64_t{0}, INT64_MIN, INT64_MAX}) {
    const auto value = ParseValueText(EntryKind::kInt64, TextOf(EntryKind::kInt64, number));
    ASSERT_TRUE(value.has_value()) << number;
    EXPECT_EQ(std::memcmp(value->bytes.data(), &number, sizeof(number)), 0) << number;
  }
}

TEST(ValueText, NanComesBackAsSome) {
  for (const double nan : {std::nan(""), -std::nan("")}) {
    const auto value = ParseValueText(EntryKind::kDouble, TextOf(EntryKind::kDouble, nan));
    ASSERT_TRUE(value.has_value());
    double number = 0;
    std::memcpy(&number, value->bytes.data(), sizeof(number));
    EXPECT_TRUE(std::isnan(number));
  }
}

TEST(ValueText, ValuesHaveTheSpecOfTheirKind) {
  for (const auto& [kind, text] : {std::pair(EntryKind::kInt64, "-7"), std::pair(EntryKind::kDouble, "2.5"),
                                   std::pair(EntryKind::kBool, "false"), std::pair(EntryKind::kString, ""),
                                   std::pair(EntryKind::kString, "a\nb"), std::pair(EntryKind::kBytes, "AAE=")}) {
    auto value = ParseValueText(kind, text);
    ASSERT_TRUE(value.has_value()) << text;
    value->spec.name = "name";
    uint64_t bytes = 0;
    EXPECT_TRUE(ValidateEntry(value->spec, &bytes).ok()) << text;
    EXPECT_EQ(bytes, value->bytes.size()) << text;
    EXPECT_EQ(ValueText(value->spec, value->bytes), text);
  }
}

TEST(ValueText, WhatIsWrittenInAnotherWayIsNone) {
  for (const char* text : {"", " 1", "01", "+1", "1.0", "0x1", "9223372036854775808", "one"}) {
    EXPECT_FALSE(ParseValueText(EntryKind::kInt64, text).has_value()) << text;
  }
  for (const char* text : {"", " 1", "1e999", "0.10", "-nan", "Infinity", "half"}) {
    EXPECT_FALSE(ParseValueText(EntryKind::kDouble, text).has_value()) << text;
  }
  for (const char* text : {"", "1", "True"}) EXPECT_FALSE(ParseValueText(EntryKind::kBool, text).has_value()) << text;
  for (const char* text : {"A", "AAE", "AA E=", "AAF=", "????"}) {
    EXPECT_FALSE(ParseValueText(EntryKind::kBytes, text).has_value()) << text;
  }
}

TEST(ValueText, KindsAreThoseThatAreNoTensor) {
  EXPECT_EQ(ParseValueKind("int64"), EntryKind::kInt64);
  EXPECT_EQ(ParseValueKind("bytes"), EntryKind::kBytes);
  EXPECT_EQ(ParseValueKind("tensor"), std::nullopt);
  EXPECT_EQ(ParseValueKind(""), std::nullopt);
}

}  // namespace
}  // namespace tidemark
