// Stores of the first format are converted when they are opened for writing.

#include "storage/store/first_format/convert.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/metric_report.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/first_format/report_files.h"
#include "storage/store/first_format/store_request.h"
#include "storage/store/garbage.h"
#include "storage/store/lease.h"
#include "storage/store/store_identity.h"
#include "tests/format/golden_store.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using testing::UnorderedElementsAre;

const StoreLayout kLayout("/store");

StepInfo InfoOf(const Store& store, int64_t step) {
  const auto record = store.catalog().Find(step);
  EXPECT_THAT(record, IsOk()) << step;
  EXPECT_TRUE(record.ok() && record->has_value()) << step;
  return record.ok() && record->has_value() ? (*record)->info : StepInfo{};
}

// What golden/README.md lists.
void ExpectGoldenSteps(Store& store, FileSystem& files) {
  EXPECT_EQ(InfoOf(store, 5).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(store, 5).reason, "the oldest");
  EXPECT_THAT(ReadValue(store, 6, files), IsOkAndHolds(50)) << "its chunk is in a file of step 5";

  EXPECT_THAT(ReadValue(store, 10, files), IsOkAndHolds(100));
  const StepInfo ten = InfoOf(store, 10);
  EXPECT_TRUE(ten.pinned);
  EXPECT_EQ(ten.pin_note, "for the \"paper\"");
  EXPECT_THAT(ten.tags, ElementsAre("paper", "v1.0"));
  EXPECT_EQ(ten.metrics, (Metrics{{"loss", 100}, {"validation/loss", 0.5}, {"validation/accuracy", 0.75}}));
  ASSERT_THAT(ten.evaluations, SizeIs(2));
  EXPECT_EQ(ten.evaluations[0].evaluator, "health");
  EXPECT_EQ(ten.evaluations[0].unhealthy, "the norm of layer 3 jumped");
  EXPECT_EQ(ten.evaluations[1].worker, "trainer");
  EXPECT_EQ(ten.evaluations[1].reported, absl::FromUnixSeconds(1'790'000'010));
  EXPECT_EQ(ten.evaluations[1].took, absl::Seconds(3));
  EXPECT_EQ(ten.user_metadata, "{\"epoch\":1}");
  EXPECT_EQ(ten.created, absl::FromUnixSeconds(1'790'000'010));
  const auto phases = store.catalog().Phases(10, ten.attempt);
  ASSERT_THAT(phases, IsOk());
  ASSERT_THAT(*phases, SizeIs(1));
  EXPECT_EQ((*phases)[0].name, "copy");
  EXPECT_EQ((*phases)[0].bytes, 8u);

  EXPECT_THAT(ReadValue(store, 20, files), IsOkAndHolds(100)) << "its chunk is in a file of step 10";
  EXPECT_THAT(InfoOf(store, 20).tags, ElementsAre("baseline"));
  EXPECT_TRUE(InfoOf(store, 20).pinned);

  EXPECT_EQ(InfoOf(store, 30).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(store, 30).metrics.at("validation/loss"), 0.25);

  EXPECT_THAT(ReadValue(store, 35, files), IsOkAndHolds(350));

  EXPECT_EQ(InfoOf(store, 40).state, StepState::kDamaged);
  EXPECT_EQ(InfoOf(store, 40).reason, "chunk 0 at offset 4096: its digest differs");

  EXPECT_THAT(ReadValue(store, 50, files), IsOkAndHolds(501));
  const StepInfo fifty = InfoOf(store, 50);
  EXPECT_EQ(fifty.kept, "one of the latest 3");
  ASSERT_FALSE(fifty.evaluations.empty());
  EXPECT_EQ(fifty.evaluations[0].outcome, Evaluation::Outcome::kFailed);
  EXPECT_EQ(fifty.evaluations[0].reason, "out of memory");

  EXPECT_EQ(InfoOf(store, 55).state, StepState::kUnsaved);
  EXPECT_EQ(InfoOf(store, 55).metrics.at("loss"), 5.5);
  EXPECT_EQ(InfoOf(store, 60).state, StepState::kFailed);
  EXPECT_THAT(InfoOf(store, 60).reason, HasSubstr("ENOSPC"));
  const auto modes = store.catalog().RecordedBestModes();
  ASSERT_THAT(modes, IsOk());
  EXPECT_THAT(*modes, UnorderedElementsAre(Pair("validation/loss", BestMode::kLowest),
                                           Pair("validation/accuracy", BestMode::kHighest)));
}

// What lies in its inbox.
void ExpectGoldenInbox(Store& store) {
  const StepInfo fifty = InfoOf(store, 50);
  EXPECT_EQ(fifty.metrics.at("worker/bleu"), 31.5);
  EXPECT_THAT(fifty.tags, ElementsAre("candidate"));
  EXPECT_EQ(InfoOf(store, 35).pin_note, "wanted after all");
  const auto requests = store.catalog().Requests();
  ASSERT_THAT(requests, IsOk());
  ASSERT_THAT(*requests, SizeIs(1));
  EXPECT_EQ((*requests)[0].step, 50);
  EXPECT_EQ((*requests)[0].attempt, fifty.attempt);
  EXPECT_EQ((*requests)[0].reason, "asked for");
  EXPECT_EQ((*requests)[0].asker, "ann on a node");
  EXPECT_EQ((*requests)[0].asked, absl::FromUnixSeconds(1'790'000'102));
}

// Nothing is left of the first format, and the store goes on.
void ExpectGoesOn(Store& store, FileSystem& files) {
  int format = 0;
  EXPECT_THAT(ReadStoreIdentity(files, store.layout(), &format), IsOk());
  EXPECT_EQ(format, kStoreFormat);
  for (const std::string& path : {store.layout().manifest(), store.layout().inbox(), store.layout().reserve()}) {
    EXPECT_THAT(files.TypeOf(path), StatusIs(StatusCode::kNotFound, testing::_)) << path;
  }
  const auto folders = files.ListDirectory(store.layout().steps());
  ASSERT_THAT(folders, IsOk());
  EXPECT_THAT(*folders, SizeIs(7)) << "without the attempt at step 70";
  EXPECT_FALSE(store.catalog().Find(70)->has_value());
  EXPECT_THAT(TrySave(store, 70, 701, files), IsOk());
  EXPECT_THAT(ReadValue(store, 70, files), IsOkAndHolds(701));
  const StepInfo seventy = InfoOf(store, 70);
  EXPECT_GT(seventy.sequence, InfoOf(store, 50).sequence);
  EXPECT_LT(EpochOf(AttemptId{*FromHex(seventy.attempt)}), kEpochMax);
}

void ExpectConverted(Store& store, FileSystem& files) {
  ExpectGoldenSteps(store, files);
  ExpectGoldenInbox(store);
  ExpectGoesOn(store, files);
}

// Copies of the golden store on a disk in memory.
class ConvertTest : public testing::Test {
 protected:
  ConvertTest() { MakeGoldenStore(disk_, "/store"); }

  absl::StatusOr<std::unique_ptr<Store>> TryOpen(FileSystem& files) {
    warnings_.clear();
    return OpenStore("/store", &warnings_, files);
  }
  std::unique_ptr<Store> Open() {
    auto store = TryOpen(disk_);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::string InFolder(int64_t step, const std::string& name) const {
    const StepFolder folder = GoldenFolder(step);
    return kLayout.attempt(folder.step, folder.attempt) + "/" + name;
  }
  // To be delivered, of an evaluator of that name.
  MetricReport Report(int64_t step, std::string evaluator) {
    MetricReport report{
        .store = *ReadStoreIdentity(disk_, kLayout), .step = step, .attempt = GoldenFolder(step).attempt};
    report.evaluation = {.evaluator = std::move(evaluator), .metrics = {{"loss", 1}}};
    return report;
  }
  void Deliver(const MetricReport& report) {
    PutFile(disk_, InboxPath(kLayout, InboxFileName(report.step, report.attempt, report.evaluation.evaluator)),
            EncodeMetricReport(report).value());
  }
  void Ask(StoreRequest::Kind kind, StepFolder about, std::string text, int64_t second) {
    const auto bytes = EncodeStoreRequest({.kind = kind,
                                           .store = *ReadStoreIdentity(disk_, kLayout),
                                           .step = about.step,
                                           .attempt = about.attempt,
                                           .text = std::move(text),
                                           .asker = "somebody",
                                           .asked = absl::FromUnixSeconds(second)});
    ASSERT_THAT(bytes, IsOk());
    PutFile(disk_, InboxPath(kLayout, RequestFileName(about, *bytes)), *bytes);
  }

  SimulatedDisk disk_;
  std::vector<std::string> warnings_;
};

TEST_F(ConvertTest, KeepsWhatTheFirstFormatHas) {
  PutFile(disk_, kLayout.reserve(), std::string(4096, '\0'));
  const auto store = Open();
  ExpectConverted(*store, disk_);
  EXPECT_THAT(warnings_,
              UnorderedElementsAre(HasSubstr("note: the store has format 2 now"),
                                   HasSubstr("note: removed what an earlier process left of its unfinished save")));
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
  EXPECT_THAT(warnings_, Contains(HasSubstr("request of somebody to pin step 6 is dropped")));
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
  PutFile(disk_, InFolder(6, MetricFileName("test")), EncodeMetricReport(Report(6, "test")).value());
  PutFile(disk_, InFolder(35, "deleted.json"), EncodeFolderNote("too old", {}));
  // Of these the records count: the one is pinned, the other the latest.
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

// Without the manifest, or with one that lacks an end: what only that knew is gone.
void ExpectFromShards(Store& store, FileSystem& files) {
  EXPECT_THAT(ReadValue(store, 6, files), IsOkAndHolds(50));
  EXPECT_THAT(ReadValue(store, 10, files), IsOkAndHolds(100));
  EXPECT_THAT(ReadValue(store, 20, files), IsOkAndHolds(100));
  EXPECT_THAT(ReadValue(store, 35, files), IsOkAndHolds(350));
  EXPECT_THAT(ReadValue(store, 50, files), IsOkAndHolds(501));
  EXPECT_THAT(InfoOf(store, 10).tags, ElementsAre("paper", "v1.0"));
  EXPECT_EQ(InfoOf(store, 10).metrics.at("validation/loss"), 0.5);
  EXPECT_EQ(InfoOf(store, 50).metrics.at("worker/bleu"), 31.5);
  EXPECT_EQ(InfoOf(store, 5).state, StepState::kDeleted) << "its folder says so";
  EXPECT_THAT(TrySave(store, 80, 800, files), IsOk());
}

TEST_F(ConvertTest, TakesTheShardsWhereTheManifestIsLost) {
  for (const bool is_empty : {false, true}) {
    ASSERT_THAT(RemoveTree(disk_, "/store"), IsOk());
    MakeGoldenStore(disk_, "/store");
    ASSERT_THAT(RemoveTree(disk_, kLayout.manifest()), IsOk());
    if (is_empty) {
      ASSERT_THAT(disk_.CreateDirectory(kLayout.manifest()), IsOk());
    }
    const auto store = Open();
    EXPECT_THAT(warnings_, Contains(HasSubstr("steps are also taken from the shards")));
    ExpectFromShards(*store, disk_);
    // Whole, so it may have been committed.
    EXPECT_THAT(ReadValue(*store, 70, disk_), IsOkAndHolds(700));
  }
}

TEST_F(ConvertTest, TakesTheShardsWhereTheEndOfTheManifestsLogIsDamaged) {
  const FileTree golden = GoldenStore();
  for (const size_t part : {3, 2}) {
    ASSERT_THAT(RemoveTree(disk_, "/store"), IsOk());
    FileTree damaged = golden;
    for (auto& [path, bytes] : damaged.files) {
      if (path.starts_with("/manifest/") && path.ends_with(".log")) bytes[bytes.size() / part] ^= 1;
    }
    WriteTree(disk_, "/store", damaged);
    const auto store = Open();
    EXPECT_THAT(warnings_, Contains(HasSubstr("or not all of it")));
    ExpectFromShards(*store, disk_);
  }
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
  const std::string lease = kLayout.leases() + "/" + LeaseFileName(unfinished.attempt, "validation");
  ASSERT_THAT(disk_.CreateDirectory(kLayout.leases()), IsOk());
  // Of another machine, of which it is not known whether the reader is alive.
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

TEST_F(ConvertTest, IsDoneOrNotAfterACrash) {
  SimulatedDisk disk(disk_.image());
  ASSERT_THAT(TryOpen(disk), IsOk());
  const size_t states = OpenAfterCrashes(disk, OneOf(5, 50), ExpectConverted);
  EXPECT_GT(states, 5u);
}

TEST_F(ConvertTest, IsDoneOrNotWhicheverCallFails) {
  const DiskImage image = disk_.image();
  std::optional<SimulatedDisk> disk;
  std::optional<FailingFileSystem> failing;
  size_t refused = 0;
  size_t opened = 0;
  const DrawnCalls drawn;
  for (size_t call = drawn.first; opened < 3; call += drawn.stride) {
    SCOPED_TRACE(call);
    ASSERT_LT(call, 5000u);
    disk.emplace(image);
    failing.emplace(*disk);
    failing->FailCall(call, absl::InternalError("EIO"));
    const absl::Status status = TryOpen(*failing).status();
    refused += status.ok() ? 0 : 1;
    const std::vector<FailingFileSystem::Call> calls = failing->calls();
    SCOPED_TRACE(testing::Message() << (calls.size() > call ? calls[call].operation + " " + calls[call].path : "") << ": "
                                    << status << "; " << testing::PrintToString(warnings_));
    opened = calls.size() <= call ? opened + 1 : 0;
    const auto store = TryOpen(*disk);
    ASSERT_THAT(store, IsOk());
    ASSERT_THAT((*store)->SweepUncommitted(), IsOk());
    ExpectConverted(**store, *disk);
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace tidemark::storage
