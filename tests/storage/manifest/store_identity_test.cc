#include "storage/manifest/store_identity.h"

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

TEST(StoreIdentity, SurvivesEncoding) {
  const StoreId id{{1, 2, 3}};
  auto decoded = DecodeStoreIdentity(EncodeStoreIdentity(id));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, id);
}

TEST(StoreIdentity, RefusesEachViolation) {
  for (const char* text : {"", "{", "[]", R"({"format": 1})", R"({"store_id": "00000000000000000000000000000000"})",
                           R"({"format": 0, "store_id": "00000000000000000000000000000000"})",
                           R"({"format": 1, "store_id": "xyz"})", R"({"format": "1", "store_id": 3})"}) {
    EXPECT_THAT(DecodeStoreIdentity(text), StatusIs(absl::StatusCode::kDataLoss, testing::_)) << text;
  }
  EXPECT_THAT(DecodeStoreIdentity(R"({"format": 2})"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("format 2")));
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

TEST(CheckIsStoreOrEmpty, AcceptsWhatAStoreHolds) {
  TestDirectory directory;
  const StoreLayout layout(directory.path());
  EXPECT_THAT(CheckIsStoreOrEmpty(PosixFileSystem(), layout), IsOk());
  for (const char* name : {"steps", "manifest", "manifest.rebuilt-1", "lost+found", ".snapshot"}) {
    std::filesystem::create_directory(directory / name);
  }
  std::ofstream(directory / "LOCK") << "x";
  EXPECT_THAT(CheckIsStoreOrEmpty(PosixFileSystem(), layout), IsOk());
  std::ofstream(directory / "notes.txt") << "x";
  EXPECT_THAT(CheckIsStoreOrEmpty(PosixFileSystem(), layout),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("not a Tidemark store"), HasSubstr("notes.txt"))));
}

TEST(DescribeThisProcess, NamesIt) {
  EXPECT_THAT(DescribeThisProcess(),
              AllOf(HasSubstr("\"pid\":" + std::to_string(getpid())), HasSubstr("\"host\":"), HasSubstr("\"since\":")));
}

}  // namespace
}  // namespace tidemark::storage
