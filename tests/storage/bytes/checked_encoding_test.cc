#include "storage/bytes/checked_encoding.h"

#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/shard/format/shard_format.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;

absl::StatusOr<CheckedEncoding<ShardHeader>> EncodeHeader(const ShardHeader& header) {
  return EncodeAndCheck("the header", header, EncodeShardHeader,
                        [](std::string_view bytes) { return DecodeShardHeader(AsBytes(bytes)); });
}

TEST(CheckedEncoding, IsTheBytesAndWhatTheySay) {
  const ShardHeader header{.identity = TestIdentity(), .chunk_bytes = 4096};
  const auto encoded = EncodeHeader(header);
  ASSERT_THAT(encoded, IsOk());
  EXPECT_EQ(encoded->bytes, EncodeShardHeader(header));
  EXPECT_EQ(encoded->as_read.identity, header.identity);
}

TEST(CheckedEncoding, RefusesAHeaderThatCouldNotBeRead) {
  ShardHeader header{.identity = TestIdentity(), .chunk_bytes = 4096};
  header.identity.rank = header.identity.world_size;
  EXPECT_THAT(EncodeHeader(header),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the header was not written, because it could not be read back: ")));
}

TEST(CheckedEncoding, RefusesAFooterThatCouldNotBeRead) {
  ShardFooter footer{.file_bytes = 3 * kShardBlockBytes, .index_offset = kShardBlockBytes, .index_bytes = 1};
  const auto encode = [&] {
    return EncodeAndCheck("the footer", footer, EncodeShardFooter,
                          [&](std::string_view bytes) { return DecodeShardFooter(AsBytes(bytes), footer.file_bytes); });
  };
  EXPECT_THAT(encode(), IsOk());
  footer.index_bytes = kShardBlockBytes + 1;
  EXPECT_THAT(encode(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shard footer: index bytes")));
}

TEST(CheckedEncoding, RefusesWhatWouldBeReadAsAnother) {
  const auto encode = [](int number) { return std::to_string(number); };
  const auto without_sign = [](std::string_view bytes) -> absl::StatusOr<int> {
    return std::stoi(std::string(bytes.substr(bytes.starts_with('-') ? 1 : 0)));
  };
  EXPECT_THAT(EncodeAndCheck("the number", 7, encode, without_sign), IsOk());
  EXPECT_THAT(EncodeAndCheck("the number", -7, encode, without_sign),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the number was not written, because it would be read back as a different one"));
}

}  // namespace
}  // namespace tidemark::storage
