#include "storage/manifest/request_inbox.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/lease.h"
#include "storage/records/tag.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/manifest/inbox_testing.h"
#include "tests/storage/manifest/unwritable_files.h"
#include "tests/storage/records/checked_object.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace fs = std::filesystem;

class RequestInboxTest : public InboxFixture {
 protected:
  using Kind = StoreRequest::Kind;

  void SetUp() override {
    store_ = OpenSoundStore(path_, &warnings_, failing_);
    ASSERT_NE(store_, nullptr);
    for (int64_t step = 1; step <= 4; ++step) steps_[step] = CommitStep(*store_, step, 40 + step);
  }

  StoreRequest Request(Kind kind, int64_t step, int64_t seconds = 0, const std::string& text = "a text") {
    return {.kind = kind,
            .store = store_->id(),
            .step = step,
            .attempt = steps_[step].attempt,
            .text = text,
            .asker = "pid 7 on node-3",
            .asked = absl::FromUnixSeconds(1'700'000'000 + seconds)};
  }

  void Deliver(const StoreRequest& request) { ASSERT_THAT(DeliverRequest(files_, layout_, request), IsOk()); }

  RequestsTaken Take(const TakeRequestsOptions& with = {}) {
    TakeRequestsOptions options = with;
    options.warn = Warn();
    Retention retention(failing_, *store_, {}, options.warn);
    return TakeInRequests(failing_, *store_, retention, options);
  }

  bool HasFolder(int64_t step) { return fs::exists(layout_.attempt(step, steps_[step].attempt)); }

  std::map<int64_t, ShardIdentity> steps_;
};

TEST_F(RequestInboxTest, PinsUnpinsAndDeletes) {
  ASSERT_THAT(store_->Pin(2, "old"), IsOk());
  Deliver(Request(Kind::kPin, 1, 0, "good"));
  Deliver(Request(Kind::kUnpin, 2));
  Deliver(Request(Kind::kDelete, 3, 0, "asked for"));
  const RequestsTaken taken = Take();
  ASSERT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.done, SizeIs(3));
  ASSERT_THAT(taken.deleted, SizeIs(1));
  EXPECT_EQ(taken.deleted[0].step, 3);
  EXPECT_EQ(taken.refused, 0);
  EXPECT_EQ(warnings_, "");
  EXPECT_TRUE(Info(1).pinned);
  EXPECT_EQ(Info(1).pin_note, "good");
  EXPECT_FALSE(Info(2).pinned);
  EXPECT_EQ(Info(3).state, StepState::kDeleted);
  EXPECT_EQ(Info(3).reason, "asked for");
  EXPECT_THAT(Inbox(), IsEmpty());
  // The pin is where a rebuild finds it, too.
  EXPECT_TRUE(fs::exists(layout_.attempt(1, steps_[1].attempt) + "/pin.json"));
  // Files go by retention, which has seen to the leases.
  EXPECT_TRUE(HasFolder(3));
  Retention retention(files_, *store_, {}, [](std::string_view) {});
  ASSERT_THAT(retention.Apply({}), IsOk());
  EXPECT_FALSE(HasFolder(3));
}

TEST_F(RequestInboxTest, TagsAndUntags) {
  ASSERT_THAT(store_->Tag(2, "old"), IsOk());
  Deliver(Request(Kind::kTag, 1, 1, "v1"));
  Deliver(Request(Kind::kUntag, 2, 2, "old"));
  Deliver(Request(Kind::kTag, 3, 3, "v2"));
  Deliver(Request(Kind::kUntag, 3, 4, "v2"));
  const RequestsTaken taken = Take();
  ASSERT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.done, SizeIs(4));
  for (int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(Info(step).pinned) << step;
  EXPECT_THAT(Info(1).tags, ElementsAre("v1"));
  EXPECT_THAT(Info(2).tags, IsEmpty());
  EXPECT_THAT(Info(3).tags, IsEmpty());
  EXPECT_EQ(warnings_, "");
}

TEST_F(RequestInboxTest, TagsAndUntagsOnceWhatIsAskedTwice) {
  for (int i = 0; i < 2; ++i) {
    Deliver(Request(Kind::kTag, 1, 1, "v1"));
    Deliver(Request(Kind::kUntag, 2, 2, "v1"));
    EXPECT_THAT(Take().done, SizeIs(2));
  }
  EXPECT_THAT(Info(1).tags, ElementsAre("v1"));
  EXPECT_THAT(Info(2).tags, IsEmpty());
  EXPECT_FALSE(Info(2).pinned) << "taking a name away that was never there pins nothing";
  EXPECT_EQ(warnings_, "");
}

TEST_F(RequestInboxTest, RefusesATagThatThereIsNoRoomFor) {
  for (size_t i = 0; i < kTagsPerStepMax; ++i) ASSERT_THAT(store_->Tag(1, fmt::format("v{}", i)), IsOk());
  Deliver(Request(Kind::kTag, 1, 1, "one-more"));
  Deliver(Request(Kind::kTag, 1, 2, "v7"));
  const RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.done, SizeIs(1));
  EXPECT_EQ(taken.refused, 1);
  EXPECT_THAT(warnings_, AllOf(HasSubstr("refused to tag step 1"), HasSubstr("it has 64 tags")));
}

TEST_F(RequestInboxTest, IsEmptyWhereNobodyHasAsked) {
  const RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.done, IsEmpty());
}

TEST_F(RequestInboxTest, CountsARequestOnceThatIsDeliveredTwice) {
  Deliver(Request(Kind::kPin, 1));
  Deliver(Request(Kind::kPin, 1));
  EXPECT_THAT(Inbox(), SizeIs(1));
  EXPECT_THAT(Take().done, SizeIs(1));
  // Somebody delivers it once more though it has been carried out, as a crash may have it.
  Deliver(Request(Kind::kPin, 1));
  EXPECT_THAT(Take().error, IsOk());
  EXPECT_TRUE(Info(1).pinned);
  Deliver(Request(Kind::kDelete, 2));
  EXPECT_THAT(Take().deleted, SizeIs(1));
  Deliver(Request(Kind::kDelete, 2));
  const RequestsTaken again = Take();
  EXPECT_THAT(again.error, IsOk());
  EXPECT_THAT(again.deleted, IsEmpty()) << "each is told once";
  EXPECT_EQ(again.refused, 0);
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_EQ(warnings_, "");
}

TEST_F(RequestInboxTest, CarriesOutRequestsInTheOrderInWhichTheyWereAsked) {
  for (int64_t second = 0; second < 6; ++second) {
    Deliver(Request(second % 2 == 0 ? Kind::kUnpin : Kind::kPin, 1, second, fmt::format("at {}", second)));
    Deliver(Request(second % 2 == 0 ? Kind::kPin : Kind::kUnpin, 2, second));
  }
  // A pin that came first keeps the step; one that comes after is too late.
  Deliver(Request(Kind::kPin, 3, 1));
  Deliver(Request(Kind::kDelete, 3, 2));
  ASSERT_THAT(Take().error, IsOk());
  EXPECT_TRUE(Info(1).pinned);
  EXPECT_EQ(Info(1).pin_note, "at 5");
  EXPECT_FALSE(Info(2).pinned);
  EXPECT_EQ(Info(3).state, StepState::kCommitted);
  EXPECT_THAT(warnings_, HasSubstr("refused to delete step 3, requested by pid 7 on node-3: pinned"));
  warnings_.clear();
  Deliver(Request(Kind::kDelete, 2, 10));
  Deliver(Request(Kind::kPin, 2, 11));
  ASSERT_THAT(Take().error, IsOk());
  EXPECT_EQ(Info(2).state, StepState::kDeleted);
  EXPECT_THAT(warnings_, HasSubstr("refused to pin step 2"));
}

TEST_F(RequestInboxTest, RefusesToDeleteWhatStaysWhateverTheRulesSay) {
  LeaseObserver observer(files_, layout_, ThisMachine(), MonotonicNow);
  const auto lease = observer.Acquire({.step = 1,
                                       .attempt = steps_[1].attempt,
                                       .evaluator = "validation",
                                       .holder = "worker 5",
                                       .expiry = absl::Minutes(1)});
  ASSERT_THAT(lease, IsOk());
  ASSERT_THAT(store_->Pin(2, "good"), IsOk());
  for (int64_t step = 1; step <= 4; ++step) Deliver(Request(Kind::kDelete, step));
  const RequestsTaken taken = Take({.claims = [] { return Claims{{3, "bench has not read it yet"}}; }});
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.done, IsEmpty());
  EXPECT_EQ(taken.refused, 4);
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_FALSE(fs::exists(layout_.quarantine()));
  // The step's record is the answer.
  const std::vector<std::string> kept = {"leased by worker 5 (evaluator validation)", "pinned (good)",
                                         "bench has not read it yet", "latest"};
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_THAT(warnings_, HasSubstr(fmt::format("refused to delete step {}, requested by pid 7 on node-3: {}\n", step,
                                                 kept[static_cast<size_t>(step - 1)])));
    EXPECT_EQ(Info(step).state, StepState::kCommitted) << step;
    EXPECT_EQ(Info(step).kept, kept[static_cast<size_t>(step - 1)]) << step;
  }
}

TEST_F(RequestInboxTest, WarnsOnceOfAllThatItRefusesForOneReason) {
  for (int64_t step = 1; step <= 3; ++step) Deliver(Request(Kind::kDelete, step));
  const auto claims = [] { return Claims{{1, "bench has not read it yet"}, {2, "bench has not read it yet"}}; };
  EXPECT_EQ(Take({.claims = claims}).refused, 2);
  EXPECT_EQ(warnings_, "refused to delete steps 1, 2, requested by pid 7 on node-3: bench has not read it yet\n");
}

TEST_F(RequestInboxTest, RefusesToDeleteAStepWhoseFolderHasAPinThatTheRecordDoesNotKnow) {
  ASSERT_THAT(WritePin(files_, layout_, {2, steps_[2].attempt}, "by hand"), IsOk());
  Deliver(Request(Kind::kDelete, 2));
  RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.deleted, IsEmpty());
  EXPECT_TRUE(Info(2).pinned);
  taken = Take();
  EXPECT_EQ(taken.refused, 1);
  EXPECT_THAT(warnings_, HasSubstr("pinned (by hand)"));
}

// What was asked of an attempt says nothing of the one that has taken its place.
TEST_F(RequestInboxTest, RefusesWhatIsAboutAnAttemptThatWasReplaced) {
  for (const Kind kind : {Kind::kPin, Kind::kUnpin, Kind::kDelete, Kind::kTag, Kind::kUntag}) {
    Deliver(Request(kind, 2, static_cast<int>(kind), "a-name"));
  }
  CommitStep(*store_, 2, 99);
  const RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_EQ(taken.refused, 5);
  EXPECT_THAT(taken.done, IsEmpty());
  EXPECT_THAT(warnings_, AllOf(HasSubstr("another attempt has replaced"), HasSubstr("is not committed")));
  EXPECT_EQ(ValueAt(*store_, 2), 99);
  EXPECT_FALSE(Info(2).pinned);
  EXPECT_FALSE(fs::exists(layout_.quarantine()));
}

TEST_F(RequestInboxTest, RefusesWhatIsAboutAStepThatThereIsNoneOf) {
  steps_[77] = steps_[1];
  for (const Kind kind : {Kind::kPin, Kind::kUnpin, Kind::kDelete, Kind::kTag, Kind::kUntag}) {
    Deliver(Request(kind, 77, 0, "a-name"));
  }
  const RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_EQ(taken.refused, 5);
  EXPECT_THAT(warnings_, AllOf(HasSubstr("pin of step 77: it is not committed"), HasSubstr("delete step 77")));
}

TEST_F(RequestInboxTest, MovesWhatIsNoRequestToQuarantineWithOneWarningEach) {
  const std::string bytes = *EncodeStoreRequest(Request(Kind::kPin, 1));
  const StepFolder folder{1, steps_[1].attempt};
  StoreRequest foreign = Request(Kind::kPin, 1);
  foreign.store.bytes[0] ^= 1;
  const std::string foreign_bytes = *EncodeStoreRequest(foreign);
  Place(RequestFileName(folder, foreign_bytes), foreign_bytes);
  Place(RequestFileName({2, steps_[2].attempt}, bytes), bytes);
  Place(RequestFileName(folder, "other bytes"), bytes);
  Place(RequestFileName(folder, "torn"), bytes.substr(0, 20));
  Place(RequestFileName(folder, "large"), std::string(kStoreRequestBytesMax + 1, ' '));
  Place("request-notes.txt", "hello");
  fs::create_directory(layout_.inbox() + "/request-folder");
  fs::create_symlink("/etc/passwd", layout_.inbox() + "/" + RequestFileName(folder, "link"));
  const RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_EQ(taken.refused, 8);
  EXPECT_THAT(taken.done, IsEmpty());
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_THAT(Quarantine(), SizeIs(8));
  EXPECT_THAT(warnings_, AllOf(HasSubstr("it is about store"), HasSubstr("it is another request, about step 1"),
                               HasSubstr("it does not end in a check"), HasSubstr("where at most 524288 are expected"),
                               HasSubstr("its name is not that of a request"), HasSubstr("it is not a regular file")));
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 8) << warnings_;
  EXPECT_FALSE(Info(1).pinned);
}

TEST_F(RequestInboxTest, LeavesANewerVersionsRequestAndWarnsOnce) {
  const std::string newer = WithCheck(R"({"version":2})");
  const std::string name = RequestFileName({1, steps_[1].attempt}, newer);
  Place(name, newer);
  std::set<std::string> warned;
  for (int i = 0; i < 3; ++i) {
    const RequestsTaken taken = Take({.warned = &warned});
    EXPECT_THAT(taken.error, IsOk());
    EXPECT_EQ(taken.refused, 0);
  }
  EXPECT_EQ(std::count(warnings_.begin(), warnings_.end(), '\n'), 1) << warnings_;
  EXPECT_THAT(warnings_,
              AllOf(HasSubstr("a newer version of Tidemark wrote it"), HasSubstr(name), HasSubstr("version 2")));
  EXPECT_THAT(Inbox(), ElementsAre(name));
}

TEST_F(RequestInboxTest, IsNoneOfTheReportsBusiness) {
  Deliver(Request(Kind::kPin, 1));
  const InboxResult reports = CollectInbox(files_, *store_, [](std::string_view) {});
  EXPECT_THAT(reports.error, IsOk());
  EXPECT_EQ(reports.rejected, 0);
  EXPECT_THAT(*PeekInbox(files_, layout_, store_->id()), IsEmpty());
  EXPECT_THAT(Inbox(), SizeIs(1));
  EXPECT_THAT(Take().done, SizeIs(1));
}

TEST_F(RequestInboxTest, RemovesDraftsOnlyWhereNobodyCanNeedThem) {
  const std::string end = "." + std::string(32, 'a') + ".tmp";
  const std::string open = RequestFileName({1, steps_[1].attempt}, "x") + end;
  const std::string no_step = RequestFileName({77, steps_[1].attempt}, "x") + end;
  const std::string replaced = RequestFileName({2, steps_[1].attempt}, "x") + end;
  for (const std::string& name : {open, no_step, replaced}) Place(name, "{");
  EXPECT_THAT(Take().error, IsOk());
  EXPECT_THAT(Inbox(), ElementsAre(open));
  Deliver(Request(Kind::kDelete, 1));
  EXPECT_THAT(Take().deleted, SizeIs(1));
  EXPECT_THAT(Take().error, IsOk());
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_EQ(warnings_, "");
}

TEST_F(RequestInboxTest, LeavesDeletionsForLaterWhereTheyAreNotWanted) {
  Deliver(Request(Kind::kDelete, 1));
  Deliver(Request(Kind::kPin, 2));
  RequestsTaken taken = Take({.deletions = false});
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.done, SizeIs(1));
  EXPECT_EQ(Info(1).state, StepState::kCommitted);
  EXPECT_THAT(Inbox(), SizeIs(1));
  EXPECT_THAT(Take().deleted, SizeIs(1));
}

TEST_F(RequestInboxTest, CarriesOutNothingAboutAStepBeforeItsDeletionThatMustWait) {
  ASSERT_THAT(store_->Pin(1, ""), IsOk());
  Deliver(Request(Kind::kDelete, 1));
  Deliver(Request(Kind::kUnpin, 1, 1));
  EXPECT_THAT(Take({.deletions = false}).done, SizeIs(0));
  const RequestsTaken taken = Take();
  EXPECT_THAT(taken.deleted, SizeIs(0));
  EXPECT_EQ(taken.refused, 1);
  EXPECT_EQ(Info(1).state, StepState::kCommitted);
  EXPECT_FALSE(Info(1).pinned);
}

TEST_F(RequestInboxTest, DoesNotMakeAStoreToDeliverInto) {
  EXPECT_THAT(DeliverRequest(files_, StoreLayout(directory_ / "nowhere"), Request(Kind::kPin, 1)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nowhere/inbox")));
}

TEST_F(RequestInboxTest, DeliversAtTheSecondTryWhicheverCallFails) {
  failing_.Reset();
  const StoreRequest request = Request(Kind::kPin, 1);
  ASSERT_THAT(DeliverRequest(failing_, layout_, request), IsOk());
  const size_t calls = failing_.calls().size();
  ASSERT_GE(calls, 8u);
  for (size_t i = 0; i < calls; ++i) {
    SCOPED_TRACE(i);
    fs::remove_all(layout_.inbox());
    failing_.Reset();
    failing_.FailCall(i, absl::ResourceExhaustedError("ENOSPC"));
    EXPECT_THAT(DeliverRequest(failing_, layout_, request), StatusIs(absl::StatusCode::kResourceExhausted, "ENOSPC"));
    EXPECT_THAT(DeliverRequest(failing_, layout_, request), IsOk());
    failing_.Reset();
    EXPECT_THAT(Take().done, SizeIs(1));
  }
}

// Of the store's own calls as well as of those on the inbox.
TEST_F(RequestInboxTest, CarriesOutEveryRequestAtTheSecondTryWhicheverCallFails) {
  const size_t stride = OneOf(2, 9);
  const size_t first = SeedOfCases() % stride;
  std::optional<size_t> calls;  // of a run without failures, which is the first one
  for (size_t i = first; !calls || i < *calls;) {
    SCOPED_TRACE(i);
    const int64_t step = 100 + 10 * static_cast<int64_t>(calls ? i + 1 : 0);
    for (int64_t more = 0; more < 4; ++more) steps_[step + more] = CommitStep(*store_, step + more, 1);
    ASSERT_THAT(store_->Pin(step + 1, ""), IsOk());
    Deliver(Request(Kind::kPin, step, 1, "good"));
    Deliver(Request(Kind::kUnpin, step + 1, 2));
    Deliver(Request(Kind::kDelete, step + 2, 3));
    Deliver(Request(Kind::kUnpin, step + 3, 4));
    Deliver(Request(Kind::kPin, step + 3, 5));
    Deliver(Request(Kind::kTag, step, 6, "v1"));
    Deliver(Request(Kind::kTag, step, 7, "v2"));
    Deliver(Request(Kind::kUntag, step, 8, "v2"));
    Place("request-stranger", "x");
    failing_.Reset();
    if (calls) failing_.FailCall(i, absl::InternalError("EIO"));
    const RequestsTaken taken = Take();
    if (!calls) {
      ASSERT_THAT(taken.error, IsOk());
      calls = failing_.calls().size();
      ASSERT_GE(*calls, 20u);
      continue;
    }
    i += stride;
    failing_.Reset();
    const RequestsTaken second = Take();
    EXPECT_THAT(second.error, IsOk());
    // A record whose write failed may be there all the same, and so may a file that was moved.
    EXPECT_LE(taken.deleted.size() + second.deleted.size(), 1u) << "each is told once";
    EXPECT_LE(taken.refused + second.refused, 1);
    EXPECT_TRUE(Info(step).pinned);
    EXPECT_THAT(Info(step).tags, ElementsAre("v1"));
    EXPECT_FALSE(Info(step + 1).pinned);
    EXPECT_EQ(Info(step + 2).state, StepState::kDeleted);
    EXPECT_TRUE(Info(step + 3).pinned);
    EXPECT_THAT(Inbox(), IsEmpty());
  }
}

TEST_F(RequestInboxTest, KeepsTheRequestWhereTheManifestCannotBeWritten) {
  Deliver(Request(Kind::kPin, 1));
  Deliver(Request(Kind::kDelete, 2));
  {
    const UnwritableFiles full;
    EXPECT_THAT(Take().error, StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
  }
  EXPECT_THAT(Inbox(), SizeIs(2));
  const RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.done, SizeIs(2));
  EXPECT_TRUE(Info(1).pinned);
  EXPECT_EQ(Info(2).state, StepState::kDeleted);
}

// An earlier request that is tried again must not undo a later one.
TEST_F(RequestInboxTest, LeavesALaterRequestWhereAnEarlierOneOfTheStepFailed) {
  Deliver(Request(Kind::kPin, 1, 1));
  Deliver(Request(Kind::kUnpin, 1, 2));
  Deliver(Request(Kind::kPin, 2, 3));
  failing_.SetRule([](const FailingFileSystem::Call& call) {
    const bool fails = call.operation == "RemoveFile" && call.path.find("/request-0000000001-") != std::string::npos;
    return fails ? absl::InternalError("EIO") : absl::OkStatus();
  });
  RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, StatusIs(absl::StatusCode::kInternal, "EIO"));
  EXPECT_TRUE(Info(1).pinned);
  EXPECT_TRUE(Info(2).pinned);
  EXPECT_THAT(Inbox(), SizeIs(2));
  failing_.Reset();
  EXPECT_THAT(Take().error, IsOk());
  EXPECT_FALSE(Info(1).pinned);
  EXPECT_THAT(Inbox(), IsEmpty());
}

// Who has the store open needs no file to ask.
TEST_F(RequestInboxTest, CarriesOutTheCallersOwnRequestsInTheirOrderAmongTheOthers) {
  Deliver(Request(Kind::kPin, 1, 1));
  Deliver(Request(Kind::kPin, 2, 9, "later"));
  const std::vector<StoreRequest> own = {Request(Kind::kUnpin, 1, 5), Request(Kind::kUnpin, 2, 5),
                                         Request(Kind::kDelete, 3, 5), Request(Kind::kDelete, 4, 5)};
  const RequestsTaken taken = Take({.own = own});
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_THAT(taken.own_done, ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(taken.own_refused, ElementsAre(testing::Pair(3u, "latest")));
  EXPECT_EQ(taken.refused, 0);
  EXPECT_FALSE(Info(1).pinned);
  EXPECT_EQ(Info(2).pin_note, "later");
  EXPECT_EQ(Info(3).state, StepState::kDeleted);
  EXPECT_THAT(Inbox(), IsEmpty());
  EXPECT_FALSE(fs::exists(layout_.quarantine()));
}

// A crash after the record and before the file is gone.
TEST_F(RequestInboxTest, GoesOnAfterACrashWhereverItCame) {
  const StoreRequest pin = Request(Kind::kPin, 1, 1, "good");
  const StoreRequest deletion = Request(Kind::kDelete, 2, 2, "old");
  Deliver(pin);
  Deliver(deletion);
  EXPECT_THAT(Take().done, SizeIs(2));
  store_.reset();
  store_ = OpenSoundStore(path_, &warnings_, failing_);
  ASSERT_NE(store_, nullptr);
  Deliver(pin);
  Deliver(deletion);
  const RequestsTaken taken = Take();
  EXPECT_THAT(taken.error, IsOk());
  EXPECT_EQ(taken.refused, 0);
  EXPECT_TRUE(Info(1).pinned);
  EXPECT_EQ(Info(2).reason, "old");
  EXPECT_EQ(warnings_, "");
}

}  // namespace
}  // namespace tidemark::storage
