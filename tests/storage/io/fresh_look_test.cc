#include "storage/io/fresh_look.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/stale_file_system.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class FreshLookTest : public testing::Test {
 protected:
  FreshLookTest() {
    EXPECT_THAT(server_.CreateDirectory("/d"), IsOk());
    EXPECT_THAT(files_.ListDirectory("/d"), IsOk());
    PutFile(server_, "/d/new", "");
  }

  SimulatedDisk server_;
  FailingFileSystem failing_{server_};
  StaleFileSystem files_{failing_, [](const std::string&) { return 100; }};
};

TEST_F(FreshLookTest, ShowsWhatTheServerHas) {
  EXPECT_THAT(files_.TypeOf("/d/new"), StatusIs(StatusCode::kNotFound, HasSubstr("/d/new")));
  LookAfresh(files_, "/d/look");
  EXPECT_THAT(files_.TypeOf("/d/new"), IsOk());
  EXPECT_EQ(server_.ListDirectory("/d")->size(), 1u) << "nothing is left of it";
}

TEST_F(FreshLookTest, ShowsWhatItDidWhereNoFileCanBeMade) {
  failing_.FailOperation("Create", absl::PermissionDeniedError("read-only"));
  LookAfresh(files_, "/d/look");
  EXPECT_THAT(files_.TypeOf("/d/new"), StatusIs(StatusCode::kNotFound, HasSubstr("/d/new")));
}

}  // namespace
}  // namespace tidemark::storage
