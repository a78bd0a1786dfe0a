#include "snapshot/exchange/safetensors_header.h"

#include <algorithm>
#include <array>

#include "fmt/format.h"
#include "gmock/gmock.h"

namespace tidemark {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Of a header that must be refused.
absl::Status HeaderRefusal(std::string_view text, uint64_t data_bytes = 4) {
  return DecodeSafetensorsHeader(text, data_bytes).status();
}

// The tensor 'w', of 4 bytes where `fields` say so.
std::string With(std::string_view fields) { return fmt::format(R"({{"w":{{{}}}}})", fields); }

void ExpectRefused(std::string_view text, std::string_view message, uint64_t data_bytes = 4) {
  const absl::Status status = HeaderRefusal(text, data_bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(message))) << text;
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("safetensors header: "));
}

std::array<std::byte, 8> LengthBytes(uint64_t length) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(length >> (8 * i) & 0xff);
  return bytes;
}

constexpr std::string_view kSound = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";

TEST(SafetensorsHeader, SaysWhatIsInIt) {
  const auto header = DecodeSafetensorsHeader(
      R"({"__metadata__":{"format":"pt"},"b":{"shape":[2,3],"data_offsets":[4,10],"dtype":"U8"},)"
      R"("a\u00e9":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"dtype":"I64","shape":[0,7],)"
      R"("data_offsets":[4,4]}}   )",
      10);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0], (SafetensorsTensor{"aé", Dtype::kFloat32, {}, 0, 4}));
  EXPECT_EQ(header->tensors[1], (SafetensorsTensor{"none", Dtype::kInt64, {0, 7}, 4, 4}));
  EXPECT_EQ(header->tensors[2], (SafetensorsTensor{"b", Dtype::kUint8, {2, 3}, 4, 10}));
}

TEST(SafetensorsHeader, WithoutTensorsIsOne) {
  const auto header = DecodeSafetensorsHeader("{}", 0);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->tensors, IsEmpty());
}

TEST(SafetensorsHeader, EveryDtypeThatItHasANameForGoesThroughIt) {
  SafetensorsHeader header;
  header.metadata = {{"quote \" \\", "line\n\x01 é"}};
  uint64_t end = 0;
  int named = 0;
  for (uint16_t number = 0; number < 128; ++number) {
    const DtypeInfo* info = FindDtype(number);
    if (info == nullptr || SafetensorsDtypeName(info->dtype).empty()) continue;
    const uint64_t begin = end;
    end += 6 * info->element_bytes;
    header.tensors.push_back({std::string(info->name) + "\n\"", info->dtype, {2, 3}, begin, end});
    ++named;
  }
  EXPECT_EQ(named, 20);
  const auto bytes = EncodeSafetensorsHeader(header);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->size() % 8, 0u);
  const auto length =
      DecodeSafetensorsLength(std::as_bytes(std::span(*bytes)).first<kSafetensorsLengthBytes>(), bytes->size() + end);
  ASSERT_TRUE(length.ok()) << length.status();
  EXPECT_EQ(*length + kSafetensorsLengthBytes, bytes->size());
  const auto again = DecodeSafetensorsHeader(std::string_view(*bytes).substr(8), end);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, header);
}

TEST(SafetensorsHeader, CountsEachHalfOfAByteOfF4) {
  SafetensorsHeader header;
  header.tensors = {{"w", Dtype::kFloat4E2M1FnX2, {3, 2}, 0, 6}};
  const auto bytes = EncodeSafetensorsHeader(header);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_THAT(*bytes, HasSubstr(R"("dtype":"F4","shape":[3,4])"));
  ExpectRefused(With(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), "no last dimension that is even", 1);
}

TEST(SafetensorsHeader, RefusesLengthsThatNoFileHas) {
  const auto refusal = [](uint64_t length, uint64_t file_bytes) {
    const auto bytes = LengthBytes(length);
    return std::string(DecodeSafetensorsLength(bytes, file_bytes).status().message());
  };
  EXPECT_THAT(refusal(0, 100), HasSubstr("expected 2 to 100000000 bytes, found 0"));
  EXPECT_THAT(refusal(100'000'001, ~uint64_t{0}), HasSubstr("found 100000001"));
  EXPECT_THAT(refusal(~uint64_t{0}, 100), HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(refusal(93, 100), HasSubstr("93 bytes, which do not fit into a file of 100 bytes"));
  EXPECT_EQ(*DecodeSafetensorsLength(LengthBytes(92), 100), 92u);
}

TEST(SafetensorsHeader, RefusesTextThatIsNoObject) {
  ExpectRefused("", "expected '{' as its first byte, found nothing");
  ExpectRefused(" {}", "expected '{' as its first byte, found ' '");
  ExpectRefused("\xef\xbb\xbf{}", "expected '{' as its first byte");
  ExpectRefused("[]", "expected '{' as its first byte, found '['");
  ExpectRefused("{", "header: parse error at line 1, column 2");
  ExpectRefused("{}{}", "parse error");
  ExpectRefused("{} x", "parse error");
  ExpectRefused("{/**/}", "parse error");
  ExpectRefused(std::string_view("{}\0 ", 4), "byte 2 is a NUL");
}

TEST(SafetensorsHeader, RefusesWhatIsNotUtf8) {
  ExpectRefused("{\"\xff\":1}", "it is not UTF-8");
  ExpectRefused("{\"\xed\xa0\x80\":1}", "it is not UTF-8");
  ExpectRefused(R"({"\ud800":1})", "surrogate");
}

TEST(SafetensorsHeader, RefusesStringsOfMoreBytesThanAReaderTakes) {
  const std::string longest(kSafetensorsStringBytesMax, 'x');
  ExpectRefused(fmt::format(R"({{"{}x":1}})", longest), "a string at byte 2 has more than 16777216 bytes");
  EXPECT_TRUE(DecodeSafetensorsHeader(fmt::format(R"({{"__metadata__":{{"a":"{}"}}}})", longest), 0).ok());
}

TEST(SafetensorsHeader, RefusesKeysThatComeTwice) {
  ExpectRefused(fmt::format(R"({{"w\n":{{{}}},"w\n":{{{}}}}})", kSound, kSound), R"(tensor 'w\n' is there twice)");
  ExpectRefused(R"({"__metadata__":{},"__metadata__":{}})", "'__metadata__' is there twice", 0);
  ExpectRefused(R"({"__metadata__":{"a":"1","a":"1"}})", "'a' of the metadata is there twice", 0);
  std::string many;
  for (size_t i = 0; i <= kSafetensorsMetadataMax; ++i) many += fmt::format(R"(,"{}":"")", i);
  ExpectRefused(R"({"__metadata__":{)" + many.substr(1) + "}}", "its metadata has more than 262144 strings", 0);
  ExpectRefused(With(R"("dtype":"F32","dtype":"F32")"), "tensor 'w' has its dtype twice");
  ExpectRefused(With(R"("shape":[1],"shape":[1])"), "tensor 'w' has its shape twice");
  ExpectRefused(With(R"("data_offsets":[0,4],"data_offsets":[0,4])"), "tensor 'w' has its data_offsets twice");
}

TEST(SafetensorsHeader, RefusesFieldsThatLackOrAreUnknown) {
  ExpectRefused(With(R"("shape":[1],"data_offsets":[0,4])"), "tensor 'w' has no dtype");
  ExpectRefused(With(R"("dtype":"F32","data_offsets":[0,4])"), "tensor 'w' has no shape");
  ExpectRefused(With(R"("dtype":"F32","shape":[1])"), "tensor 'w' has no data_offsets");
  ExpectRefused(With(fmt::format(R"({},"x\u001b":1)", kSound)), R"(tensor 'w' has a field 'x\x1b', which is unknown)");
}

TEST(SafetensorsHeader, RefusesDtypesThatItDoesNotKnow) {
  ExpectRefused(With(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), "the dtype 'F31', which is unknown");
  ExpectRefused(With(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), "the dtype 'f32', which is unknown");
  EXPECT_EQ(HeaderRefusal(With(R"("dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3])"), 3),
            absl::InvalidArgumentError(
                "safetensors header: tensor 'w' has the dtype 'F6_E2M3', which Tidemark has no type for"));
}

TEST(SafetensorsHeader, RefusesNumbersThatAreNoCounts) {
  for (const auto& [number, named] :
       {std::pair("-1", "a negative number"), std::pair("1.0", "a number that is not whole"),
        std::pair("1e2", "a number that is not whole"), std::pair("18446744073709551616", "not whole"),
        std::pair("\"1\"", "a string"), std::pair("null", "null"), std::pair("true", "a boolean"),
        std::pair("[1]", "an array"), std::pair("{}", "an object")}) {
    ExpectRefused(With(fmt::format(R"("shape":[{}])", number)), named);
    ExpectRefused(With(fmt::format(R"("data_offsets":[0,{}])", number)), named);
  }
  ExpectRefused(With(R"("shape":[9223372036854775808])"), "has a dimension of 9223372036854775808");
  ExpectRefused(With(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), "has 1 data_offsets, where two are expected");
  ExpectRefused(With(R"("data_offsets":[0,1,2])"), "has more than two data_offsets");
  ExpectRefused(With(R"("shape":[1e999])"), "number overflow");
}

TEST(SafetensorsHeader, RefusesValuesOfAnotherKind) {
  ExpectRefused(R"({"w":1})", "'w': expected an object, found a number");
  ExpectRefused(R"({"w":[]})", "'w': expected an object, found an array");
  ExpectRefused(R"({"__metadata__":[]})", "'__metadata__': expected an object, found an array");
  ExpectRefused(R"({"__metadata__":{"a":1}})", "'a' of the metadata: expected a string, found a number");
  ExpectRefused(R"({"__metadata__":{"a":{}}})", "'a' of the metadata: expected a string, found an object");
  ExpectRefused(With(R"("dtype":32)"), "tensor 'w' has a number as its dtype");
  ExpectRefused(With(R"("shape":4)"), "tensor 'w' has a number as its shape");
  ExpectRefused(With(R"("data_offsets":{})"), "tensor 'w' has an object as its data_offsets");
}

TEST(SafetensorsHeader, RefusesNestingWithoutGoingIntoIt) {
  ExpectRefused(With(R"("shape":)" + std::string(1'000'000, '[')), "an array among its dimensions");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  ExpectRefused(objects, "tensor 'a' has a field 'a', which is unknown");
}

TEST(SafetensorsHeader, RefusesShapesThatOverflow) {
  const std::string message = "has a shape of more bytes than 63 bits can count";
  ExpectRefused(With(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), message, 0);
  ExpectRefused(With(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"), message, 0);
  ExpectRefused(With(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), message, 0);
}

TEST(SafetensorsHeader, RefusesMoreDimensionsThanAnEntryHas) {
  std::string dimensions = "1";
  for (size_t i = 1; i < EntrySpec::kDimensionsMax; ++i) dimensions += ",1";
  const auto with = [](std::string_view shape) {
    return With(fmt::format(R"("dtype":"F32","shape":[{}],"data_offsets":[0,4])", shape));
  };
  EXPECT_TRUE(DecodeSafetensorsHeader(with(dimensions), 4).ok());
  EXPECT_EQ(HeaderRefusal(with(dimensions + ",1")),
            absl::InvalidArgumentError("safetensors header: tensor 'w' has more than 64 dimensions"));
}

TEST(SafetensorsHeader, RefusesSizesThatAreNotThoseOfTheShape) {
  ExpectRefused(With(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
                "is at [0, 4), 4 bytes, where its shape and dtype need 8");
  ExpectRefused(With(R"("dtype":"F32","shape":[],"data_offsets":[0,3])"), "3 bytes, where its shape and dtype need 4",
                3);
}

TEST(SafetensorsHeader, RefusesPlacesOutsideOfTheData) {
  ExpectRefused(With(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "data_offsets [4, 0) are outside");
  ExpectRefused(With(R"("dtype":"F32","shape":[1],"data_offsets":[1,5])"), "are outside the 4 bytes of data");
  ExpectRefused(With(R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615])"),
                "are outside the 4 bytes of data");
}

TEST(SafetensorsHeader, RefusesTensorsThatOverlap) {
  ExpectRefused(fmt::format(R"({{"v":{{"dtype":"U8","shape":[3],"data_offsets":[2,5]}},"w":{{{}}}}})", kSound),
                "tensor 'v' begins at 2 of the data, where another one ends at 4: they overlap", 5);
}

TEST(SafetensorsHeader, RefusesBytesThatBelongToNoTensor) {
  ExpectRefused(fmt::format(R"({{"v":{{"dtype":"U8","shape":[1],"data_offsets":[6,7]}},"w":{{{}}}}})", kSound),
                "tensor 'v' begins at 6 of the data, and no tensor has the 2 bytes before it", 7);
  ExpectRefused(With(kSound), "the tensors have 4 bytes of data, and the file has 5", 5);
  ExpectRefused("{}", "the tensors have 0 bytes of data, and the file has 1", 1);
}

TEST(SafetensorsHeader, RefusesMoreTensorsThanAReaderTakes) {
  std::string text = "{";
  for (size_t i = 0; i <= kSafetensorsTensorsMax; ++i) {
    text += fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
  }
  text.back() = '}';
  ExpectRefused(text, "it has more than 262144 tensors", 0);
}

TEST(SafetensorsHeader, IsNotMadeOfWhatTheFormatDoesNotHave) {
  const auto refusal = [](std::vector<SafetensorsTensor> tensors) {
    return std::string(EncodeSafetensorsHeader({.tensors = std::move(tensors)}).status().message());
  };
  EXPECT_EQ(refusal({{"w", Dtype::kComplex128, {0}, 0, 0}}), "safetensors has no dtype for 'w' of complex128");
  EXPECT_EQ(refusal({{"__metadata__", Dtype::kUint8, {0}, 0, 0}}), "safetensors reserves the name __metadata__");
  EXPECT_EQ(refusal({{"w", Dtype::kUint8, {0}, 0, 0}, {"w", Dtype::kUint8, {0}, 0, 0}}), "tensor 'w' is there twice");
  EXPECT_THAT(refusal({{"w", Dtype::kFloat4E2M1FnX2, {}, 0, 1}}), HasSubstr("in its last dimension"));
}

}  // namespace
}  // namespace tidemark
