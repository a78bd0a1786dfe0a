#include "storage/io/held_names.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST(HeldNames, AreWhatTheyWereUntilOneLeadsElsewhere) {
  const TestDirectory directory;
  FailingFileSystem files(PosixFileSystem());
  for (const char* name : {"a", "b"}) std::filesystem::create_directory(directory / name);
  HeldNames names(files, "the store s");
  EXPECT_THAT(names.Check(), IsOk());
  EXPECT_THAT(names.Add(directory / "none"), StatusIs(StatusCode::kNotFound, HasSubstr("none")));
  for (const char* name : {"a", "b"}) ASSERT_THAT(names.Add(directory / name), IsOk());
  EXPECT_THAT(names.Check(), IsOk());
  files.FailOperation("Identify", absl::InternalError("EIO"), 1);
  EXPECT_THAT(names.Check(), StatusIs(StatusCode::kInternal, "EIO"));
  files.Reset();

  std::filesystem::rename(directory / "b", directory / "c");
  EXPECT_THAT(names.Check(), StatusIs(StatusCode::kFailedPrecondition,
                                      testing::AllOf(HasSubstr("the store s was moved or replaced while it was open: "),
                                                     HasSubstr((directory / "b") + ": No such file"))));
  std::filesystem::create_directory(directory / "b");
  EXPECT_THAT(names.Check(), StatusIs(StatusCode::kFailedPrecondition,
                                      HasSubstr((directory / "b") + ": another file has that name now")));
  std::filesystem::remove(directory / "b");
  std::filesystem::rename(directory / "c", directory / "b");
  EXPECT_THAT(names.Check(), IsOk()) << "it is back";
}

}  // namespace
}  // namespace tidemark::storage
