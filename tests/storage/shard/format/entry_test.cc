#include "tidemark/entry.h"

#include <limits>
#include <set>

#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

absl::Status Validate(const EntrySpec& spec) {
  uint64_t bytes = 0;
  return ValidateEntry(spec, &bytes);
}

TEST(Dtypes, AreFoundByNumberAndByName) {
  size_t count = 0;
  for (uint32_t number = 0; number <= 65535; ++number) {
    const DtypeInfo* info = FindDtype(static_cast<uint16_t>(number));
    if (info == nullptr) continue;
    ++count;
    EXPECT_EQ(static_cast<uint32_t>(info->dtype), number);
    EXPECT_EQ(FindDtype(info->name), info);
    EXPECT_EQ(info->element_bytes % std::max<int>(1, info->float_bytes), 0) << info->name;
  }
  EXPECT_EQ(count, 42u);
  EXPECT_EQ(FindDtype("float"), nullptr);
}

TEST(ValidateEntry, GivesTheBytesOfTheHeldBox) {
  uint64_t bytes = 0;
  EXPECT_THAT(ValidateEntry(Tensor("w", Dtype::kComplex64, {3, 5}), &bytes), IsOk());
  EXPECT_EQ(bytes, 3 * 5 * 8u);
  EXPECT_THAT(ValidateEntry(Tensor("w", Dtype::kBfloat16, {}), &bytes), IsOk());
  EXPECT_EQ(bytes, 2u);
  EntrySpec box = Tensor("w", Dtype::kFloat32, {100, 100});
  box.box_offset = {99, 100};
  box.box_extent = {1, 0};
  EXPECT_THAT(ValidateEntry(box, &bytes), IsOk());
  EXPECT_EQ(bytes, 0u);
}

TEST(ValidateEntry, RefusesEachBrokenRule) {
  EXPECT_THAT(Validate(Tensor("", Dtype::kInt8, {})), StatusIs(StatusCode::kInvalidArgument, HasSubstr("empty name")));
  EXPECT_THAT(Validate(Tensor(std::string(4097, 'n'), Dtype::kInt8, {})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("its name has 4097 bytes, more than 4096")));
  EXPECT_THAT(Validate(Tensor("w", static_cast<Dtype>(77), {})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("dtype 77 is unknown")));
  EXPECT_THAT(Validate(Tensor("w", Dtype::kInt8, std::vector<int64_t>(65, 1))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("it has 65 dimensions, more than 64")));
  EXPECT_THAT(Validate(Tensor("w", Dtype::kInt8, {2, -1})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("shape [2, -1] has a negative extent")));
  EXPECT_THAT(Validate(Tensor("w", Dtype::kFloat64, {int64_t{1} << 60})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("more bytes than 63 bits can count")));
  EXPECT_THAT(Validate(Tensor("w", Dtype::kInt8, {0, INT64_MAX, INT64_MAX})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("more bytes than 63 bits can count")));
  EntrySpec spec = Tensor("w", Dtype::kInt8, {4});
  spec.kind = static_cast<EntryKind>(9);
  EXPECT_THAT(Validate(spec), StatusIs(StatusCode::kInvalidArgument, HasSubstr("kind 9 is unknown")));
  spec.kind = EntryKind::kString;
  EXPECT_THAT(Validate(spec), StatusIs(StatusCode::kInvalidArgument, HasSubstr("do not fit its kind, string")));
  spec = Tensor("w", Dtype::kInt8, {4});
  spec.box_offset = {0, 0};
  spec.box_extent = {1, 1};
  EXPECT_THAT(Validate(spec),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("differ in their number of dimensions")));
  spec.box_offset = {std::numeric_limits<int64_t>::max()};
  spec.box_extent = {1};
  EXPECT_THAT(Validate(spec), StatusIs(StatusCode::kInvalidArgument, HasSubstr("leaves dimension 0 of extent 4")));
}

TEST(ValidateEntry, TakesNamesInUtf8Alone) {
  for (const char* name : {"a", "größe", "\xe4\xbd\xa0", "\xf0\x9f\x8c\x8a", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_THAT(Validate(Tensor(name, Dtype::kInt8, {})), IsOk()) << name;
  }
  for (const char* name :
       {"\x80", "a\xff", "\xc3", "\xc3(", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe4\xbd", "\xed\xa0\x80",
        "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x9f\x8c"}) {
    EXPECT_THAT(Validate(Tensor(name, Dtype::kInt8, {})),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("an entry has a name that is not UTF-8: '")));
  }
}

TEST(DescribeEntry, NamesDtypeAndShape) {
  EXPECT_EQ(DescribeEntry(Tensor("w", Dtype::kFloat32, {512, 128})), "float32 [512, 128]");
  EXPECT_EQ(DescribeEntry({.name = "n", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}), "int64");
}

}  // namespace
}  // namespace tidemark::storage
