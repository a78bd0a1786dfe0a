#include "snapshot/housekeeping/metrics_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/time/time.h"
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

constexpr absl::Duration kLong = absl::Hours(10);

TEST_F(MetricsFileTest, IsWrittenWhenItIsDueAndSomethingHasChanged) {
  MetricsFile never(files_, path_, kLong);
  ASSERT_THAT(never.Update(/*at_once=*/false, 1, [] { return "early\n"; }), IsOk());
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_THAT(never.Update(/*at_once=*/true, 1, [] { return "at once\n"; }), IsOk());
  EXPECT_EQ(Contents(), "at once\n");
  MetricsFile always(files_, path_, absl::ZeroDuration());
  ASSERT_THAT(always.Update(/*at_once=*/false, 1, [] { return "due\n"; }), IsOk());
  EXPECT_EQ(Contents(), "due\n");
  ASSERT_THAT(always.Update(/*at_once=*/false, 1, [] { return "unchanged\n"; }), IsOk());
  EXPECT_EQ(Contents(), "due\n");
}

// Else who waits until it is due would wait no more.
TEST_F(MetricsFileTest, BeginsAnIntervalAlsoWhereNothingHasChanged) {
  MetricsFile file(files_, path_, absl::Milliseconds(50));
  // Where this thread had no processor for so long, the new interval has passed, too: then once more.
  bool begun = false;
  for (int i = 0; i < 20 && !begun; ++i) {
    while (file.until_due() > absl::ZeroDuration()) continue;
    ASSERT_THAT(file.Update(/*at_once=*/false, 0, [] { return "nothing\n"; }), IsOk());
    begun = file.until_due() > absl::ZeroDuration();
  }
  EXPECT_TRUE(begun);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(MetricsFileTest, KeepsTheErrorOfTheLastTryUntilOneSucceeds) {
  MetricsFile file(files_, path_, kLong);
  files_.FailOperation("CreateReadable", absl::ResourceExhaustedError("no room"));
  const auto text = [] { return "text\n"; };
  EXPECT_THAT(file.Update(/*at_once=*/true, 1, text), StatusIs(absl::StatusCode::kResourceExhausted, "no room"));
  EXPECT_THAT(file.Update(/*at_once=*/false, 1, text), StatusIs(absl::StatusCode::kResourceExhausted, "no room"));
  files_.Reset();
  EXPECT_THAT(file.Update(/*at_once=*/true, 1, text), IsOk());
  EXPECT_EQ(Contents(), "text\n");
}

TEST_F(MetricsFileTest, IsNeverDueWithoutAPath) {
  MetricsFile none(files_, "", absl::ZeroDuration());
  EXPECT_EQ(none.until_due(), absl::InfiniteDuration());
  EXPECT_THAT(none.Update(/*at_once=*/true, 1, [] { return "text\n"; }), IsOk());
}

}  // namespace
}  // namespace tidemark
