#include "storage/store/store_identity.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(StoreIdentity, SurvivesEncoding) {
  const StoreId id{{1, 2, 3}};
  auto decoded = DecodeStoreIdentity(EncodeStoreIdentity(id));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, id);
}

TEST(StoreIdentity, SaysWhichFormatTheStoreHas) {
  TestDirectory directory;
  const StoreLayout layout(directory.path());
  std::string text = EncodeStoreIdentity(StoreId{{1}});
  int format = 0;
  std::ofstream(layout.identity()) << text;
  ASSERT_THAT(ReadStoreIdentity(PosixFileSystem(), layout, &format), IsOk());
  EXPECT_EQ(format, 2);
  text.replace(text.find("\"format\":2"), 10, "\"format\":1");
  std::ofstream(layout.identity()) << text;
  ASSERT_THAT(ReadStoreIdentity(PosixFileSystem(), layout, &format), IsOk());
  EXPECT_EQ(format, 1);
}

TEST(StoreIdentity, RefusesEachViolation) {
  for (const char* text :
       {"", "{", "[]", R"({"format": 1})", R"({"store_id": "00000000000000000000000000000000"})",
        R"({"format": 0, "store_id": "00000000000000000000000000000000"})", R"({"format": 1, "store_id": "xyz"})",
        R"({"format": "1", "store_id": 3})", R"({"format": 1, "store_id": "00000000000000000000000000000000"})",
        R"({"format": 1, "store_id": "00000000000000000000000000000000", "check": "0"})"}) {
    // None shows how the parser calls its errors.
    EXPECT_THAT(DecodeStoreIdentity(text), StatusIs(absl::StatusCode::kDataLoss, Not(HasSubstr("exception")))) << text;
  }
  EXPECT_THAT(DecodeStoreIdentity(R"({"format": 3})"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("format 3")));
}

TEST(StoreIdentity, IsNeverAnotherIdAfterAFlippedBit) {
  const StoreId id{{0xa5, 2, 3}};
  const std::string text = EncodeStoreIdentity(id);
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    auto decoded = DecodeStoreIdentity(flipped);
    // A space for the newline at the end is as good; a higher digit in the format cannot be told from a newer format.
    if (decoded.ok()) {
      EXPECT_EQ(*decoded, id) << flipped;
    } else {
      EXPECT_TRUE(absl::IsDataLoss(decoded.status()) || absl::IsUnimplemented(decoded.status())) << flipped;
    }
  }
}

TEST(StoreIdentity, IsReadWithThePathInEveryError) {
  TestDirectory directory;
  const StoreLayout layout(directory.path());
  EXPECT_THAT(ReadStoreIdentity(PosixFileSystem(), layout),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(layout.identity())));
  std::ofstream(layout.identity()) << "{";
  EXPECT_THAT(ReadStoreIdentity(PosixFileSystem(), layout),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(layout.identity())));
}

TEST(CheckIsEmpty, AcceptsWhatDoesNotCount) {
  TestDirectory directory;
  const StoreLayout layout(directory.path());
  EXPECT_THAT(CheckIsEmpty(PosixFileSystem(), layout), IsOk());
  for (const char* name : {"steps", "lost+found", ".snapshot"}) std::filesystem::create_directory(directory / name);
  for (const char* name : {"LOCK", "store.json.tmp"}) std::ofstream(directory / name) << "x";
  EXPECT_THAT(CheckIsEmpty(PosixFileSystem(), layout), IsOk());
}

TEST(CheckIsEmpty, NamesWhatElseIsThere) {
  for (const char* name : {"notes.txt", "manifest/app.yaml", "manifest", "steps/1", "quarantine"}) {
    TestDirectory directory;
    std::filesystem::create_directories(directory / name);
    EXPECT_THAT(CheckIsEmpty(PosixFileSystem(), StoreLayout(directory.path())),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("not a Tidemark store"),
                               HasSubstr(std::string(name).substr(0, std::string(name).find('/'))))));
  }
}

TEST(DescribeThisProcess, NamesIt) {
  EXPECT_THAT(DescribeThisProcess(),
              AllOf(HasSubstr("\"pid\":" + std::to_string(getpid())), HasSubstr("\"host\":"), HasSubstr("\"since\":")));
}

TEST(MayBeInspect, IsToldByTheProgramOfTheNote) {
  EXPECT_TRUE(MayBeInspect("{\"host\":\"vm\",\"program\":\"checkpoint-inspect\"}\n"));
  EXPECT_TRUE(MayBeInspect("")) << "it has yet to be written";
  for (const char* note :
       {"{\"program\":\"train\"}", "{\"program\":3}", "{}", "[]", "checkpoint-inspect", "{\"program\":\"che"}) {
    EXPECT_FALSE(MayBeInspect(note)) << note;
  }
  EXPECT_FALSE(MayBeInspect(DescribeThisProcess()));
}

}  // namespace
}  // namespace tidemark::storage
