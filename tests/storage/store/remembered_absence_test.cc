// A client of a file server lists a name and remembers that it was missing: nothing is lost, so nothing is made anew.

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store_layout.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RememberedAbsenceTest : public testing::Test {
 protected:
  // Steps 1 (pinned), 2 and 3, each with a value 100 times as high; entries 1 to 5 of the journal.
  void SetUp() override {
    const auto store = OpenStore(directory_.path(), &warnings_);
    ASSERT_THAT(store, IsOk());
    for (const int64_t step : {1, 2, 3}) SaveStep(**store, step, 100 * step);
    ASSERT_THAT((*store)->Pin(1, "kept"), IsOk());
  }

  void ExpectHasAll(const Store& store) {
    for (const int64_t step : {1, 2, 3}) EXPECT_THAT(ReadValue(store, step), IsOkAndHolds(100 * step));
    EXPECT_TRUE(store.catalog().Find(1)->value().info.pinned);
  }

  std::string EntryPath(int number) const { return fmt::format("{}/0000/00/{:010}", layout_.journal(), number); }

  // From now on the client finds neither the path nor what is below it, and lists it nevertheless; until the journal is
  // moved away.
  static void Hide(const std::string& path, FailingFileSystem& client) {
    client.SetRule([path, is_moved = false](const FailingFileSystem::Call& call) mutable {
      is_moved = is_moved || absl::StrContains(call.path, "/journal.broken-");
      const bool looks = call.operation == "OpenForRead" || call.operation == "TypeOf" ||
                         call.operation == "ListDirectory" || call.operation == "OpenDirectory";
      return looks && !is_moved && (call.path == path || call.path.starts_with(path + "/"))
                 ? absl::NotFoundError("remembered")
                 : absl::OkStatus();
    });
  }

  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  std::vector<std::string> warnings_;
};

TEST_F(RememberedAbsenceTest, WhatIsListedAndCannotBeOpenedIsNotMadeAnew) {
  std::vector<std::string> hidden = {layout_.journal(), layout_.journal() + "/0000", layout_.journal() + "/0000/00"};
  for (int number = 1; number <= 5; ++number) hidden.push_back(EntryPath(number));
  int refused = 0;
  for (const bool index : {true, false}) {
    for (const std::string& path : hidden) {
      if (!index) fs::remove_all(layout_.index());
      SCOPED_TRACE(fmt::format("{}, {}", path, index ? "with the index" : "without it"));
      FailingFileSystem client(PosixFileSystem());
      Hide(path, client);
      const auto store = OpenStore(directory_.path(), &warnings_, client);
      if (store.ok()) {
        // A later entry has a copy of the one that is hidden, or the index has applied it.
        ExpectHasAll(**store);
      } else {
        EXPECT_THAT(store.status(), StatusIs(StatusCode::kAborted, HasSubstr("try again")));
        ++refused;
      }
      EXPECT_THAT(warnings_, IsEmpty());
      EXPECT_THAT(JournalsPutAside(directory_.path()), IsEmpty());
      warnings_.clear();
    }
  }
  EXPECT_GE(refused, 6) << "each folder, twice";
  const auto store = OpenStore(directory_.path(), &warnings_);
  ASSERT_THAT(store, IsOk());
  ExpectHasAll(**store);
}

// As in a damaged directory.
TEST_F(RememberedAbsenceTest, ARepairMakesAnewWhatIsListedAndCannotBeOpened) {
  fs::remove_all(layout_.index());
  FailingFileSystem client(PosixFileSystem());
  Hide(EntryPath(4), client);  // of step 3's commit
  EXPECT_THAT(OpenStore(directory_.path(), &warnings_, client).status(),
              StatusIs(StatusCode::kAborted, HasSubstr("repair")));
  const auto store = Store::Open(client, {.directory = directory_.path(),
                                          .warn = [this](std::string_view line) { warnings_.emplace_back(line); },
                                          .checks_journal = true});
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT(warnings_, Contains(HasSubstr("is made anew")));
  EXPECT_THAT(JournalsPutAside(directory_.path()), ElementsAre(testing::StartsWith("journal.broken-")));
  for (const int64_t step : {1, 2, 3}) EXPECT_THAT(ReadValue(**store, step), IsOkAndHolds(100 * step));
}

}  // namespace
}  // namespace tidemark::storage
