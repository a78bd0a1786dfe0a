#include "storage/store/leased_attempts.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(LeasedAttempts, AreNoneWhereThereIsNoFolder) {
  TestDirectory directory;
  auto leased = LeasedAttempts(PosixFileSystem(), StoreLayout(directory / "store"));
  ASSERT_THAT(leased, IsOk());
  EXPECT_THAT(*leased, IsEmpty());
}

TEST(LeasedAttempts, AreThoseThatALeaseNames) {
  TestDirectory directory;
  const StoreLayout layout(directory.path());
  std::filesystem::create_directories(layout.leases());
  const std::string digits(32, '0');
  for (const AttemptId& attempt : {AttemptId{{1}}, AttemptId{{2}}}) {
    for (const char digit : {'a', 'b'}) {
      std::ofstream(layout.leases() + "/" + ToHex(attempt.bytes) + "-" + std::string(32, digit) + ".lease");
    }
  }
  for (const std::string& name :
       {digits + ".lease", digits + "-x.tmp", "x-" + digits + ".lease", std::string(32, 'x') + "-" + digits + ".lease",
        std::string(".lease"), digits + "-x.lease", digits + "-" + digits + "0.lease"}) {
    std::ofstream(layout.leases() + "/" + name);
  }
  std::filesystem::create_directories(layout.leases() + "/" + digits + "-" + digits + ".lease");
  auto leased = LeasedAttempts(PosixFileSystem(), layout);
  ASSERT_THAT(leased, IsOk());
  EXPECT_THAT(*leased, ElementsAre(AttemptId{{1}}, AttemptId{{2}}));
}

TEST(LeasedAttempts, AreNotKnownWhereTheFolderCannotBeListed) {
  TestDirectory directory;
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("ListDirectory", absl::InternalError("EIO"));
  EXPECT_THAT(LeasedAttempts(files, StoreLayout(directory.path())),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
}

}  // namespace
}  // namespace tidemark::storage
