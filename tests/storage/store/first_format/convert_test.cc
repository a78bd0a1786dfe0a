// Stores of the first format are converted when they are opened for writing.

#include "storage/store/first_format/convert.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/metric_report.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/first_format/report_files.h"
#include "storage/store/first_format/store_request.h"
#include "storage/store/lease.h"
#include "storage/store/repair/repair.h"
#include "storage/store/store_identity.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/store/first_format/convert_testing.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

TEST_F(ConvertTest, KeepsWhatTheFirstFormatHas) {
  PutFile(disk_, kLayout.reserve(), std::string(4096, '\0'));
  const auto store = Open();
  ExpectConverted(*store, disk_);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("note: the store has format 2 now")));
}

TEST_F(ConvertTest, RemovesASaveThatWasCutShort) {
  const StepFolder seventy = GoldenFolder(70);
  CutShort(seventy);
  const auto store = Open();
  EXPECT_THAT(warnings_,
              UnorderedElementsAre(HasSubstr("note: the store has format 2 now"),
                                   HasSubstr("note: removed what an earlier process left of its unfinished save")));
  EXPECT_FALSE(store->catalog().Find(70)->has_value());
  for (const std::string& path : {kLayout.attempt(70, seventy.attempt), kLayout.quarantine()}) {
    EXPECT_THAT(disk_.TypeOf(path), StatusIs(StatusCode::kNotFound, testing::_)) << path;
  }
}

TEST_F(ConvertTest, IsNotBegunByARepairThatIsToAdoptASave) {
  EXPECT_THAT(RepairStore(disk_, {.directory = kLayout.directory(), .adopt = {70}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("first format")));
  ExpectConverted(*Open(), disk_);
}

// One random id of 65,536 looks like that of an epoch, which the new journal does not know.
TEST_F(ConvertTest, AnIdLikeThatOfAnEpochIsNoSignOfALostJournal) {
  const ShardIdentity cut = WriteAttempt(80, 800, 1000, AttemptId{{0, 0, 7}});
  CutShort({80, cut.attempt});
  const auto store = Open();
  EXPECT_THAT(warnings_, Not(Contains(HasSubstr("the journal cannot be read"))));
  EXPECT_THAT(disk_.TypeOf(kLayout.attempt(80, cut.attempt)), StatusIs(StatusCode::kNotFound, testing::_));
  ExpectConverted(*store, disk_);
}

// Whatever is named like a journal, and is none.
TEST_F(ConvertTest, IsDoneBesideOtherNames) {
  const std::string left = kLayout.journal() + ".new-1234";
  PutFile(disk_, kLayout.journal() + ".txt", "notes");
  for (const std::string& path : {kLayout.journal() + "s", left}) ASSERT_THAT(disk_.CreateDirectory(path), IsOk());
  EXPECT_THAT(IsOfFirstFormat(disk_, kLayout), IsOkAndHolds(true));
  FailingFileSystem failing(disk_);
  failing.SetRule([&](const FailingFileSystem::Call& call) {
    return call.operation == "RemoveDirectory" && call.path == left ? absl::InternalError("EIO") : absl::OkStatus();
  });
  const auto store = TryOpen(failing);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT(warnings_, Contains(HasSubstr("the leftovers of an interrupted rebuild stay")));
  ExpectConverted(**store, disk_);
}

TEST_F(ConvertTest, IsNotDoneWhereAJournalWasReplaced) {
  ASSERT_THAT(disk_.CreateDirectory(kLayout.journal() + ".broken-1234"), IsOk());
  EXPECT_THAT(IsOfFirstFormat(disk_, kLayout), IsOkAndHolds(false));
}

TEST_F(ConvertTest, IsDoneOnce) {
  FileId journal;
  {
    const auto store = Open();
    ExpectGoesOn(*store, disk_);
    journal = *disk_.Identify(kLayout.journal());
  }
  const auto store = Open();
  ExpectGoldenSteps(*store, disk_);
  ExpectGoldenInbox(*store);
  EXPECT_THAT(ReadValue(*store, 70, disk_), IsOkAndHolds(701));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(*disk_.Identify(kLayout.journal()), journal);
}

// A crash came between the two; or a library of before had a journal in a store of format 1.
TEST_F(ConvertTest, WritesTheFormatWhereAJournalIsThereAlready) {
  std::string first;
  {
    const auto bytes = ReadSmallFile(disk_, kLayout.identity(), 4096);
    ASSERT_THAT(bytes, IsOk());
    first = *bytes;
    ExpectGoesOn(*Open(), disk_);
  }
  PutFile(disk_, kLayout.identity(), first);
  const auto store = Open();
  int format = 0;
  ASSERT_THAT(ReadStoreIdentity(disk_, kLayout, &format), IsOk());
  EXPECT_EQ(format, kStoreFormat);
  EXPECT_THAT(ReadValue(*store, 70, disk_), IsOkAndHolds(701));
  EXPECT_THAT(warnings_, IsEmpty());
}

// A conversion would take back what was said since.
TEST_F(ConvertTest, IsNotDoneAgainWhereTheJournalIsLost) {
  const FileTree first = GoldenStore();
  { ExpectGoesOn(*Open(), disk_); }
  ASSERT_THAT(RemoveTree(disk_, kLayout.journal()), IsOk());
  ASSERT_THAT(disk_.CreateDirectory(kLayout.manifest()), IsOk());
  for (const auto& [path, bytes] : first.files) {
    if (path.starts_with("/manifest/")) PutFile(disk_, "/store" + path, bytes);
  }
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("the journal cannot be read and is made anew")));
  EXPECT_THAT(ReadValue(*store, 70, disk_), IsOkAndHolds(701));
}

// The store has attempts of the first format only, whose ids are of no epoch.
TEST_F(ConvertTest, AnEmptiedJournalIsMissed) {
  { ExpectGoldenSteps(*Open(), disk_); }
  for (const std::string& path : {kLayout.journal(), kLayout.index()}) ASSERT_THAT(RemoveTree(disk_, path), IsOk());
  ASSERT_THAT(disk_.CreateDirectory(kLayout.journal()), IsOk());
  const auto store = Open();
  EXPECT_THAT(warnings_, Contains(HasSubstr("the journal cannot be read and is made anew: it is lost")));
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  for (const auto& [step, value] : {std::pair(6, 50), std::pair(10, 100), std::pair(50, 501), std::pair(70, 700)}) {
    EXPECT_THAT(ReadValue(*store, step, disk_), IsOkAndHolds(value));
  }
}

TEST_F(ConvertTest, TakesInRequestsInTheOrderInWhichTheyWereMade) {
  const StepFolder six = GoldenFolder(6);
  Ask(StoreRequest::Kind::kUntag, six, "first", 2);
  Ask(StoreRequest::Kind::kTag, six, "first", 1);
  Ask(StoreRequest::Kind::kTag, six, "second", 3);
  Ask(StoreRequest::Kind::kUnpin, GoldenFolder(20), "", 4);
  Ask(StoreRequest::Kind::kPin, {6, AttemptId{{99}}}, "gone", 5);
  PutFile(disk_, InboxPath(kLayout, RequestFileName(six, "{")), "{");
  const auto store = Open();
  EXPECT_THAT(InfoOf(*store, 6).tags, ElementsAre("second"));
  EXPECT_FALSE(InfoOf(*store, 20).pinned);
  EXPECT_THAT(InfoOf(*store, 20).tags, IsEmpty());
  EXPECT_THAT(warnings_, Contains(HasSubstr("request of a test to pin step 6 is dropped")));
  EXPECT_THAT(warnings_, Contains(HasSubstr("a request is dropped: /store/inbox/request-")));
}

TEST_F(ConvertTest, LeavesReportsOutThatCannotBeUsed) {
  Deliver(Report(6, "late"));
  MetricReport replaced = Report(6, "replaced");
  replaced.attempt.bytes[0] ^= 1;
  Deliver(replaced);
  const std::string torn = InboxPath(kLayout, InboxFileName(6, GoldenFolder(6).attempt, "torn"));
  PutFile(disk_, torn, "{");
  const auto store = Open();
  EXPECT_EQ(InfoOf(*store, 6).metrics.at("late/loss"), 1);
  EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("a report is dropped"), HasSubstr(torn))));
  EXPECT_THAT(warnings_, Contains(HasSubstr("the report of evaluator 'replaced' on step 6 is dropped")));
  EXPECT_THAT(InfoOf(*store, 6).evaluations, SizeIs(1));
}

// A crash came before the records.
TEST_F(ConvertTest, BelievesNotesAndReportsOfFoldersThatNoRecordHas) {
  PutFile(disk_, InFolder(20, "pin.json"), EncodeFolderNote("another note", {"baseline", "v2"}));
  PutFile(disk_, InFolder(6, "pin.json"), EncodeFolderNote("found", {"v3"}));
  PutFile(disk_, InFolder(6, MetricFileName("test")), EncodeMetricReport(Report(6, "test")));
  PutFile(disk_, InFolder(35, "deleted.json"), EncodeFolderNote("too old", {}));
  // Of these the records count: the one is pinned, the other the latest.
  ASSERT_THAT(RemoveTree(disk_, kLayout.attempt(70, GoldenFolder(70).attempt)), IsOk());
  PutFile(disk_, InFolder(10, "deleted.json"), EncodeFolderNote("too old", {}));
  PutFile(disk_, InFolder(50, "deleted.json"), EncodeFolderNote("too old", {}));
  const auto store = Open();
  EXPECT_THAT(InfoOf(*store, 20).tags, ElementsAre("baseline", "v2"));
  EXPECT_EQ(InfoOf(*store, 20).pin_note, "");
  EXPECT_TRUE(InfoOf(*store, 6).pinned);
  EXPECT_EQ(InfoOf(*store, 6).pin_note, "found");
  EXPECT_THAT(InfoOf(*store, 6).tags, ElementsAre("v3"));
  EXPECT_EQ(InfoOf(*store, 6).metrics.at("test/loss"), 1);
  EXPECT_EQ(InfoOf(*store, 35).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(*store, 35).reason, "too old");
  EXPECT_THAT(ReadValue(*store, 10, disk_), IsOkAndHolds(100));
  EXPECT_THAT(ReadValue(*store, 50, disk_), IsOkAndHolds(501));
  EXPECT_THAT(warnings_, Contains(HasSubstr("request of ann on a node to pin step 35 is dropped")));
}

// What the disk does not give out would be lost for good, so the store stays as it is. A pin whose record is there is
// believed without its file.
TEST_F(ConvertTest, WaitsForADiskThatCannotBeRead) {
  const std::string pin = InFolder(6, "pin.json");
  PutFile(disk_, pin, EncodeFolderNote("found", {}));
  const std::string report = InFolder(10, MetricFileName("health"));
  const std::string delivered = InboxPath(kLayout, InboxFileName(50, GoldenFolder(50).attempt, "worker"));
  FailingFileSystem failing(disk_);
  for (const std::string& path : {pin, report, delivered}) {
    failing.SetRule([&](const FailingFileSystem::Call& call) {
      return call.operation == "OpenForRead" && call.path == path ? absl::InternalError("EIO " + path)
                                                                  : absl::OkStatus();
    });
    EXPECT_THAT(TryOpen(failing), StatusIs(StatusCode::kInternal, HasSubstr(path)));
    EXPECT_THAT(IsOfFirstFormat(disk_, kLayout), IsOkAndHolds(true));
  }
  const std::string recorded = InFolder(10, "pin.json");
  failing.SetRule([&](const FailingFileSystem::Call& call) {
    return call.operation == "OpenForRead" && call.path == recorded ? absl::InternalError("EIO") : absl::OkStatus();
  });
  const auto store = TryOpen(failing);
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT(warnings_, Contains(AllOf(HasSubstr("step 10 is pinned by"), HasSubstr("EIO"))));
  EXPECT_THAT(InfoOf(**store, 10).tags, ElementsAre("paper", "v1.0"));
  EXPECT_EQ(InfoOf(**store, 6).pin_note, "found");
}

TEST_F(ConvertTest, KeepsTheRecordOfAStepWhoseFolderIsGone) {
  ASSERT_THAT(RemoveTree(disk_, kLayout.attempt(35, GoldenFolder(35).attempt)), IsOk());
  const auto store = Open();
  EXPECT_EQ(InfoOf(*store, 35).state, StepState::kCommitted);
  EXPECT_THAT(ReadValue(*store, 50, disk_), IsOkAndHolds(501));
}

TEST_F(ConvertTest, WritesStoreJsonFromTheManifest) {
  const auto id = ReadStoreIdentity(disk_, kLayout);
  ASSERT_THAT(id, IsOk());
  for (const bool is_missing : {true, false}) {
    ASSERT_THAT(RemoveTree(disk_, "/store"), IsOk());
    MakeGoldenStore(disk_, "/store");
    ASSERT_THAT(disk_.RemoveFile(kLayout.identity()), IsOk());
    if (!is_missing) PutFile(disk_, kLayout.identity(), "{");
    const auto store = Open();
    EXPECT_EQ(store->id(), *id);
    EXPECT_THAT(warnings_, Contains(HasSubstr("store.json was rewritten")));
    ExpectConverted(*store, disk_);
  }
}

// A reader may still hold what was never committed.
TEST_F(ConvertTest, AnAttemptThatIsLeasedMeanwhileGoesLater) {
  const StepFolder unfinished = GoldenFolder(70);
  CutShort(unfinished);
  const std::string lease = kLayout.leases() + "/" + LeaseFileName(unfinished.attempt, "validation");
  ASSERT_THAT(disk_.CreateDirectory(kLayout.leases()), IsOk());
  // From another machine, so it is not known whether the reader is alive.
  PutFile(disk_, lease,
          EncodeLeaseNote({.step = 70,
                           .attempt = unfinished.attempt,
                           .evaluator = "validation",
                           .holder = "pid 7",
                           .machine = "another",
                           .expiry = absl::Hours(1)}));
  const std::string folder = kLayout.attempt(70, unfinished.attempt);
  {
    const auto store = Open();
    ASSERT_THAT(store->SweepUncommitted(), IsOk());
    EXPECT_THAT(disk_.TypeOf(folder), IsOk());
    EXPECT_THAT(disk_.TypeOf(kLayout.manifest()), StatusIs(StatusCode::kNotFound, testing::_));
  }
  ASSERT_THAT(disk_.RemoveFile(lease), IsOk());
  const auto store = Open();
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  EXPECT_THAT(disk_.TypeOf(folder), StatusIs(StatusCode::kNotFound, testing::_));
  ExpectGoldenSteps(*store, disk_);
}

}  // namespace
}  // namespace tidemark::storage
