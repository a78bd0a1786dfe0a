// What an append answers to each outcome of each step. That its rules hold beside other processes is shown by
// exploration_test.cc.

#include "storage/journal/appender.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/journal/journal_testing.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Result = Appender::Result;
using Step = Appender::Step;

absl::Status MakesSense(const JournalView&) { return absl::OkStatus(); }

class AppenderTest : public testing::Test {
 protected:
  AppendDraft Draft(uint8_t id, AppendDraft::Kind kind = AppendDraft::Kind::kAnybody, uint64_t epoch = 0) {
    return {.kind = kind, .id = TestEntryId(id), .epoch = epoch, .facts = {"fact"}};
  }
  // The file gets its number, and the append is told.
  Step Name() {
    made_.PutBytes(appender_.number(), appender_.file());
    return appender_.Named(absl::OkStatus());
  }
  Step Read() { return appender_.Read(made_.From(appender_.view().established() + 1), MakesSense); }
  Step Sync(const absl::Status& status = absl::OkStatus()) { return appender_.Synced(status, MakesSense); }
  // Up to the sync.
  void RunToSync(AppendDraft draft) {
    ASSERT_EQ(appender_.Begin(std::move(draft), MakesSense), Step::kWrite);
    ASSERT_EQ(appender_.Written(absl::OkStatus()), Step::kName);
    ASSERT_EQ(Name(), Step::kRead);
    ASSERT_EQ(Read(), Step::kSync);
  }
  // Another process appends after what is there.
  void AppendAsAnother(uint8_t id, uint64_t epoch = 0) {
    JournalView view;
    ASSERT_THAT(view.Learn(made_.From(1)), IsOk());
    EntryFile file{.entry = {.number = view.last().number + 1,
                             .id = TestEntryId(id),
                             .epoch = epoch,
                             .begins_epoch = epoch != 0,
                             .previous = view.last().digest,
                             .facts = {"another's"}}};
    for (const KnownEntry& known : view.entries()) file.carried.push_back(known.entry);
    made_.Put(file);
  }

  MadeJournal made_;
  Appender appender_;
};

TEST_F(AppenderTest, EstablishesAnEntry) {
  RunToSync(Draft(1));
  EXPECT_EQ(appender_.result(), Result::kPending);
  EXPECT_EQ(Sync(), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kEstablished);
  EXPECT_EQ(appender_.place(), appender_.view().last());
  EXPECT_EQ(appender_.view().established(), 1u);
  RunToSync(Draft(2));
  const EntryFile file = DecodeEntryFile(2, appender_.file()).value();
  EXPECT_EQ(file.entry.durable, 1u);
  EXPECT_THAT(file.carried, IsEmpty());
}

TEST_F(AppenderTest, BeginsTheEpochAfterTheNewestOne) {
  AppendAsAnother(9, /*epoch=*/1);
  ASSERT_THAT(appender_.view().Learn(made_.From(1)), IsOk());
  RunToSync(Draft(1, AppendDraft::Kind::kBeginsEpoch));
  Sync();
  EXPECT_EQ(appender_.place().epoch, 2u);
  RunToSync(Draft(2, AppendDraft::Kind::kHolder, 2));
  Sync();
  EXPECT_EQ(appender_.result(), Result::kEstablished);
  EXPECT_TRUE(appender_.view().Find(TestEntryId(2))->counts);
}

TEST_F(AppenderTest, RefusesWhatDoesNotMakeSense) {
  const auto check = [](const JournalView&) { return absl::NotFoundError("no such step"); };
  EXPECT_EQ(appender_.Begin(Draft(1), check), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kRefused);
  EXPECT_THAT(appender_.status(), StatusIs(absl::StatusCode::kNotFound, "no such step"));
}

TEST_F(AppenderTest, RefusesAHolderThatANewerEpochHasFenced) {
  AppendAsAnother(8, /*epoch=*/1);
  ASSERT_THAT(appender_.view().Learn(made_.From(1)), IsOk());
  ASSERT_EQ(appender_.Begin(Draft(1, AppendDraft::Kind::kHolder, 1), MakesSense), Step::kWrite);
  AppendAsAnother(9, /*epoch=*/2);
  appender_.Written(absl::OkStatus());
  EXPECT_EQ(appender_.Named(absl::AlreadyExistsError("2 exists")), Step::kRead);
  EXPECT_EQ(Read(), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kRefused);
  EXPECT_THAT(appender_.status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("its epoch is 2, this process's is 1")));
}

TEST_F(AppenderTest, TriesTheNextNumberWhereAnotherTookThisOne) {
  ASSERT_EQ(appender_.Begin(Draft(1), MakesSense), Step::kWrite);
  appender_.Written(absl::OkStatus());
  AppendAsAnother(9);
  EXPECT_EQ(appender_.Named(absl::AlreadyExistsError("1 exists")), Step::kRead);
  EXPECT_EQ(Read(), Step::kWrite);
  appender_.Written(absl::OkStatus());
  EXPECT_EQ(appender_.number(), 2u);
  EXPECT_EQ(DecodeEntryFile(2, appender_.file())->carried.size(), 1u);
  Name();
  EXPECT_EQ(Read(), Step::kSync);
  Sync();
  EXPECT_EQ(appender_.place().number, 2u);
}

TEST_F(AppenderTest, ChecksAgainWhatAnotherAppendedBefore) {
  ASSERT_EQ(appender_.Begin(Draft(1), MakesSense), Step::kWrite);
  appender_.Written(absl::OkStatus());
  AppendAsAnother(9);
  appender_.Named(absl::AlreadyExistsError("1 exists"));
  EXPECT_EQ(appender_.Read(made_.From(1),
                           [](const JournalView& view) {
                             return view.Find(TestEntryId(9)) == nullptr ? absl::OkStatus()
                                                                         : absl::FailedPreconditionError("deleted");
                           }),
            Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kRefused);
  EXPECT_THAT(appender_.status(), StatusIs(absl::StatusCode::kFailedPrecondition, "deleted"));
}

TEST_F(AppenderTest, KnowsItsOwnEntryWhateverTheNamingAnswered) {
  for (const absl::Status& answer : {absl::AlreadyExistsError("exists"), absl::InternalError("EIO")}) {
    appender_ = Appender();
    made_ = MadeJournal();
    ASSERT_EQ(appender_.Begin(Draft(1), MakesSense), Step::kWrite);
    appender_.Written(absl::OkStatus());
    made_.PutBytes(1, appender_.file());
    EXPECT_EQ(appender_.Named(answer), Step::kRead);
    EXPECT_EQ(Read(), Step::kSync);
  }
}

TEST_F(AppenderTest, FailsWithNothingAppendedWhereTheFileCannotBeWritten) {
  ASSERT_EQ(appender_.Begin(Draft(1), MakesSense), Step::kWrite);
  EXPECT_EQ(appender_.Written(absl::ResourceExhaustedError("no room")), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kFailed);
  EXPECT_THAT(appender_.status(), StatusIs(absl::StatusCode::kResourceExhausted, "no room"));
}

TEST_F(AppenderTest, FailsWithNothingAppendedWhereTheNamingFails) {
  ASSERT_EQ(appender_.Begin(Draft(1), MakesSense), Step::kWrite);
  appender_.Written(absl::OkStatus());
  EXPECT_EQ(appender_.Named(absl::ResourceExhaustedError("no room")), Step::kRead);
  EXPECT_EQ(Read(), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kFailed);
  EXPECT_THAT(appender_.status(), StatusIs(absl::StatusCode::kResourceExhausted, "no room"));
}

TEST_F(AppenderTest, FailsWithNothingAppendedWhereAnEntryWouldBeTooLong) {
  AppendDraft draft = Draft(1);
  draft.facts = {std::string(kEntryFileBytesMax, 'x')};
  EXPECT_EQ(appender_.Begin(std::move(draft), MakesSense), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kFailed);
  EXPECT_THAT(appender_.status(), StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
}

TEST_F(AppenderTest, DoesNotKnowWhereTheReadingFails) {
  ASSERT_EQ(appender_.Begin(Draft(1), MakesSense), Step::kWrite);
  appender_.Written(absl::OkStatus());
  Name();
  EXPECT_EQ(appender_.Read(absl::InternalError("EIO"), MakesSense), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kUnknown);
  EXPECT_THAT(appender_.status(), StatusIs(absl::StatusCode::kInternal, "EIO"));
}

TEST_F(AppenderTest, DoesNotKnowWhereTheJournalIsDamaged) {
  ASSERT_EQ(appender_.Begin(Draft(1), MakesSense), Step::kWrite);
  appender_.Written(absl::OkStatus());
  Name();
  made_.At(1).pop_back();
  EXPECT_EQ(Read(), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kUnknown);
  EXPECT_THAT(appender_.status(), StatusIs(absl::StatusCode::kDataLoss, testing::_));
}

TEST_F(AppenderTest, SettlesAnEntryWhoseSyncFailed) {
  RunToSync(Draft(1));
  EXPECT_EQ(Sync(absl::InternalError("EIO")), Step::kWrite);
  EXPECT_EQ(appender_.number(), 2u);
  const EntryFile file = DecodeEntryFile(2, appender_.file()).value();
  EXPECT_THAT(file.entry.facts, IsEmpty());
  ASSERT_EQ(file.carried.size(), 1u);
  EXPECT_EQ(file.carried[0].id, TestEntryId(1));
  appender_.Written(absl::OkStatus());
  Name();
  EXPECT_EQ(Read(), Step::kSync);
  EXPECT_EQ(Sync(absl::InternalError("EIO")), Step::kWrite);  // and once more
  EXPECT_EQ(DecodeEntryFile(3, appender_.file())->carried.size(), 2u);
  appender_.Written(absl::OkStatus());
  Name();
  EXPECT_EQ(Read(), Step::kSync);
  EXPECT_EQ(Sync(), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kEstablished);
  EXPECT_EQ(appender_.place().number, 1u);
  EXPECT_EQ(appender_.view().established(), 3u);
}

TEST_F(AppenderTest, DoesNotKnowWhereAnEntryCannotBeSettled) {
  RunToSync(Draft(1));
  Sync(absl::InternalError("EIO"));
  EXPECT_EQ(appender_.Written(absl::ResourceExhaustedError("no room")), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kUnknown);
  // The next append carries it.
  RunToSync(Draft(2));
  Sync();
  EXPECT_EQ(appender_.view().established(), 2u);
  EXPECT_NE(appender_.view().Find(TestEntryId(1)), nullptr);
}

TEST_F(AppenderTest, IsEstablishedByAnothersStatement) {
  RunToSync(Draft(1));
  EXPECT_EQ(Sync(absl::InternalError("EIO")), Step::kWrite);
  appender_.Written(absl::OkStatus());
  AppendAsAnother(8);
  JournalView view;
  ASSERT_THAT(view.Learn(made_.From(1)), IsOk());
  made_.Put({.entry = {.number = 3,
                       .id = TestEntryId(9),
                       .durable = 2,
                       .previous = view.last().digest,
                       .facts = {"another's, which knows that 2 is durable"}}});
  appender_.Named(absl::AlreadyExistsError("2 exists"));
  EXPECT_EQ(Read(), Step::kNone);
  EXPECT_EQ(appender_.result(), Result::kEstablished);
  EXPECT_EQ(appender_.place().number, 1u);
}

// A power loss took the number, a later entry carries what stood there, and this process had seen an old listing.
TEST_F(AppenderTest, LeavesANumberThatALaterEntryKnowsAsAnothers) {
  AppendAsAnother(8);
  AppendAsAnother(9);
  made_.Remove(1);
  ASSERT_EQ(appender_.Begin(Draft(1), MakesSense), Step::kWrite);
  appender_.Written(absl::OkStatus());
  EXPECT_EQ(appender_.number(), 1u);
  Name();
  EXPECT_EQ(Read(), Step::kWrite);
  EXPECT_EQ(appender_.number(), 3u);
  appender_.Written(absl::OkStatus());
  Name();
  EXPECT_EQ(Read(), Step::kSync);
  Sync();
  EXPECT_EQ(appender_.place().number, 3u);
}

TEST_F(AppenderTest, EndsOneAppendBeforeTheNext) {
  appender_.Begin(Draft(1), MakesSense);
  EXPECT_DEATH(appender_.Begin(Draft(2), MakesSense), "an append begins before the one before it has ended");
  EXPECT_DEATH(appender_.Synced(absl::OkStatus(), MakesSense), "a sync that was not asked for");
}

}  // namespace
}  // namespace tidemark::storage
