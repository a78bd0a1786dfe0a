#include "snapshot/metrics_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

class MetricsFileTest : public testing::Test {
 protected:
  absl::Status Replace(std::string_view text) { return ReplaceMetricsFile(files_, path_, text); }
  std::string Contents() const {
    auto contents = storage::ReadSmallFile(storage::PosixFileSystem(), path_, 1 << 20);
    return contents.ok() ? *contents : contents.status().ToString();
  }

  storage::TestDirectory directory_;
  const std::string path_ = directory_ / "tidemark.prom";
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
};

TEST_F(MetricsFileTest, IsReplacedAsAWhole) {
  ASSERT_THAT(Replace("a long text\n"), IsOk());
  ASSERT_THAT(Replace("short\n"), IsOk());
  EXPECT_EQ(Contents(), "short\n");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

// A collector runs as another user.
TEST_F(MetricsFileTest, IsReadableForOthersAsTheUmaskAllows) {
  using std::filesystem::perms;
  const perms others = perms::group_read | perms::others_read;
  const perms owners = perms::owner_read | perms::owner_write;
  const mode_t before = umask(0022);
  EXPECT_THAT(Replace("first\n"), IsOk());
  EXPECT_EQ(std::filesystem::status(path_).permissions(), owners | others);
  umask(0077);
  EXPECT_THAT(Replace("second\n"), IsOk());
  EXPECT_EQ(std::filesystem::status(path_).permissions(), owners);
  umask(before);
}

TEST_F(MetricsFileTest, ReplacesATemporaryFileThatWasLeftBehind) {
  std::ofstream(path_ + ".tmp") << "something much longer than what comes";
  ASSERT_THAT(Replace("new\n"), IsOk());
  EXPECT_EQ(Contents(), "new\n");
}

TEST_F(MetricsFileTest, KeepsTheOldTextWhenACallFails) {
  ASSERT_THAT(Replace("old\n"), IsOk());
  for (const char* operation : {"CreateReadable", "WriteAt", "Close", "Rename"}) {
    SCOPED_TRACE(operation);
    files_.FailOperation(operation, absl::ResourceExhaustedError("ENOSPC"));
    EXPECT_THAT(Replace("new\n"), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
    EXPECT_EQ(Contents(), "old\n");
    files_.Reset();
  }
  ASSERT_THAT(Replace("new\n"), IsOk());
  EXPECT_EQ(Contents(), "new\n");
}

TEST_F(MetricsFileTest, SaysWhereItCouldNotBeMade) {
  EXPECT_THAT(ReplaceMetricsFile(files_, directory_ / "missing/x.prom", ""),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing/x.prom.tmp")));
}

}  // namespace
}  // namespace tidemark
