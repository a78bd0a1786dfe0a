// Which facts a change is, and what refuses it.

#include "storage/store/step_changes.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/tag.h"
#include "storage/store/memory_catalog.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

AttemptId AttemptOfByte(uint8_t n) { return AttemptId{{n}}; }

class StepChangesTest : public testing::Test {
 protected:
  // What `facts` say becomes true.
  void Apply(const absl::StatusOr<Facts>& facts) {
    ASSERT_THAT(facts, IsOk());
    catalog_.Apply(*facts);
  }

  StepInfo InfoOf(int64_t step) {
    const auto record = catalog_.Find(step);
    EXPECT_TRUE(record.ok() && record->has_value()) << step;
    return record.ok() && record->has_value() ? (*record)->info : StepInfo();
  }

  static StepRecord Record(int64_t step, uint8_t attempt) {
    StepRecord record;
    record.info.step = step;
    record.info.attempt = ToHex(AttemptOfByte(attempt).bytes);
    record.info.sequence = attempt;
    return record;
  }

  absl::StatusOr<Facts> Commit(int64_t step, uint8_t attempt) {
    return CommitFacts(catalog_, Record(step, attempt), nullptr,
                       [this](std::string_view line) { warnings_.emplace_back(line); });
  }

  static EvaluationFact Report(int64_t step, uint8_t attempt, double accuracy) {
    EvaluationFact report{.step = step, .attempt = ToHex(AttemptOfByte(attempt).bytes)};
    report.evaluation.evaluator = "validation";
    report.evaluation.metrics = {{"accuracy", accuracy}};
    return report;
  }

  MemoryCatalog catalog_;
  std::vector<std::string> warnings_;
};

TEST_F(StepChangesTest, ACommitTakesOverThePinOfWhatItReplaces) {
  Apply(Commit(1, 1));
  Apply(PinFacts(catalog_, 1, "mine", std::nullopt));
  Apply(TagFacts(catalog_, 1, "paper", std::nullopt));
  Apply(Commit(1, 2));
  const StepInfo info = InfoOf(1);
  EXPECT_EQ(info.attempt, ToHex(AttemptOfByte(2).bytes));
  EXPECT_TRUE(info.pinned);
  EXPECT_EQ(info.pin_note, "mine");
  EXPECT_THAT(info.tags, ElementsAre("paper"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StepChangesTest, ACommitMayReferToWhatAStepKeeps) {
  const auto refers = [&](uint8_t attempt, int64_t step) {
    StepRecord record = Record(9, 9);
    record.references = {{.step = step, .attempt = AttemptOfByte(attempt), .rank = 1, .world_size = 2}};
    return record;
  };
  EXPECT_THAT(CheckReferencesAreKept(catalog_, Record(9, 9)), IsOk());
  EXPECT_THAT(CheckReferencesAreKept(catalog_, refers(1, 1)), StatusIs(StatusCode::kNotFound, HasSubstr("of step 1")));
  Apply(Commit(1, 1));
  EXPECT_THAT(CheckReferencesAreKept(catalog_, refers(1, 1)), IsOk());
  EXPECT_THAT(CheckReferencesAreKept(catalog_, refers(2, 1)), StatusIs(StatusCode::kNotFound, HasSubstr("rank 1")));
  // Deleted, but another step refers to it.
  StepRecord second = Record(2, 2);
  second.references = refers(1, 1).references;
  Apply(CommitFacts(catalog_, second, nullptr, [](std::string_view) {}));
  NotedSteps noted;
  const auto remove = [&](int64_t step, uint8_t attempt) {
    const std::vector<StepNote> notes = {
        {.step = step, .attempt = ToHex(AttemptOfByte(attempt).bytes), .deleted = true, .reason = "old"}};
    Apply(NoteFacts(catalog_, notes, std::nullopt, 4096, noted));
  };
  remove(1, 1);
  EXPECT_THAT(CheckReferencesAreKept(catalog_, refers(1, 1)), IsOk());
  Apply(Commit(3, 3));
  remove(2, 2);
  EXPECT_THAT(CheckReferencesAreKept(catalog_, refers(1, 1)), StatusIs(StatusCode::kNotFound, HasSubstr("deleted")));
}

TEST_F(StepChangesTest, ACommitWarnsOfTagsThatAStepHasNoRoomFor) {
  Apply(Commit(1, 1));
  for (size_t i = 0; i < kTagsPerStepMax; ++i) Apply(TagFacts(catalog_, 1, fmt::format("t{}", i), std::nullopt));
  StepRecord again = Record(1, 2);
  again.info.pinned = true;
  again.info.tags = {"one-more"};
  Apply(CommitFacts(catalog_, again, nullptr, [this](std::string_view line) { warnings_.emplace_back(line); }));
  EXPECT_THAT(InfoOf(1).tags, SizeIs(kTagsPerStepMax));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("loses the tag 'one-more'")));
}

TEST_F(StepChangesTest, ACommitBringsItsPhases) {
  const PhasesRecord phases{
      .step = 1, .attempt = ToHex(AttemptOfByte(1).bytes), .phases = {{.name = "copy", .lane = "trainer"}}};
  Apply(CommitFacts(catalog_, Record(1, 1), &phases, [](std::string_view) {}));
  const auto recorded = catalog_.Phases(1, phases.attempt);
  ASSERT_THAT(recorded, IsOk());
  ASSERT_THAT(*recorded, SizeIs(1));
  EXPECT_EQ((*recorded)[0].name, "copy");
}

TEST_F(StepChangesTest, AFailureIsRecordedUnlessMoreIsKnown) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  Apply(FailureFacts(catalog_, 1, 5, now, "no room"));
  EXPECT_EQ(InfoOf(1).state, StepState::kFailed);
  EXPECT_EQ(InfoOf(1).reason, "no room");
  // An earlier one says nothing any more.
  EXPECT_THAT(*FailureFacts(catalog_, 1, 4, now - absl::Seconds(1), "earlier"), IsEmpty());
  EXPECT_THAT(*FailureFacts(catalog_, 1, 4, now + absl::Seconds(1), "earlier, by a clock that was ahead"), IsEmpty());
  Apply(FailureFacts(catalog_, 1, 6, now + absl::Seconds(1), "later"));
  EXPECT_EQ(InfoOf(1).reason, "later");
  Apply(FailureFacts(catalog_, 1, 7, now - absl::Hours(1), "after the clock was set back"));
  EXPECT_EQ(InfoOf(1).reason, "after the clock was set back");
  Apply(Commit(1, 8));
  EXPECT_EQ(InfoOf(1).state, StepState::kCommitted);
  EXPECT_THAT(*FailureFacts(catalog_, 1, 9, now + absl::Seconds(2), "again"), IsEmpty());
}

TEST_F(StepChangesTest, AStepThatWasOnlyEvaluatedIsRecordedOnce) {
  StepInfo info;
  info.step = 3;
  info.state = StepState::kUnsaved;
  Apply(UnsavedFacts(catalog_, info));
  EXPECT_EQ(InfoOf(3).state, StepState::kUnsaved);
  EXPECT_THAT(*UnsavedFacts(catalog_, info), IsEmpty());
}

TEST_F(StepChangesTest, PinsChangeWhatTheySay) {
  Apply(Commit(1, 1));
  Apply(PinFacts(catalog_, 1, "why", AttemptOfByte(1)));
  EXPECT_EQ(InfoOf(1).pin_note, "why");
  EXPECT_THAT(*PinFacts(catalog_, 1, "why", std::nullopt), IsEmpty());
  Apply(TagFacts(catalog_, 1, "b", std::nullopt));
  Apply(TagFacts(catalog_, 1, "a", std::nullopt));
  EXPECT_THAT(*TagFacts(catalog_, 1, "a", std::nullopt), IsEmpty());
  EXPECT_THAT(InfoOf(1).tags, ElementsAre("a", "b"));
  EXPECT_EQ(InfoOf(1).pin_note, "why");
  Apply(UntagFacts(catalog_, 1, "a", std::nullopt));
  EXPECT_THAT(*UntagFacts(catalog_, 1, "a", std::nullopt), IsEmpty());
  EXPECT_THAT(InfoOf(1).tags, ElementsAre("b"));
  EXPECT_TRUE(InfoOf(1).pinned);
  Apply(UnpinFacts(catalog_, 1, std::nullopt));
  EXPECT_FALSE(InfoOf(1).pinned);
  EXPECT_THAT(InfoOf(1).tags, IsEmpty());
  EXPECT_EQ(InfoOf(1).pin_note, "");
  EXPECT_THAT(*UnpinFacts(catalog_, 1, std::nullopt), IsEmpty());
}

TEST_F(StepChangesTest, ATagThatAnotherStepHasIsRefusedOrMoved) {
  Apply(Commit(1, 1));
  Apply(Commit(2, 2));
  Apply(TagFacts(catalog_, 1, "a", std::nullopt));
  Apply(TagFacts(catalog_, 1, "b", std::nullopt));
  EXPECT_THAT(TagFacts(catalog_, 2, "a", std::nullopt), StatusIs(StatusCode::kAlreadyExists, HasSubstr("step 1 has")));
  Apply(TagFacts(catalog_, 2, "a", std::nullopt, TakenTag::kMove));
  EXPECT_THAT(InfoOf(1).tags, ElementsAre("b"));
  EXPECT_TRUE(InfoOf(1).pinned);
  EXPECT_THAT(InfoOf(2).tags, ElementsAre("a"));
  Apply(MarkFacts(catalog_, 2, InfoOf(2).attempt, StepState::kDeleted, "by the test"));
  Apply(TagFacts(catalog_, 1, "a", std::nullopt));
  EXPECT_THAT(InfoOf(1).tags, ElementsAre("a", "b")) << "a step without files has no tag to lose";
}

TEST_F(StepChangesTest, ATagPinsTheStep) {
  Apply(Commit(1, 1));
  Apply(TagFacts(catalog_, 1, "paper", std::nullopt));
  EXPECT_TRUE(InfoOf(1).pinned);
}

TEST_F(StepChangesTest, PinsAreRefusedThatMeanNoCommittedAttempt) {
  EXPECT_THAT(PinFacts(catalog_, 9, "", std::nullopt), StatusIs(StatusCode::kNotFound, HasSubstr("pin of step 9")));
  Apply(Commit(1, 2));
  EXPECT_THAT(PinFacts(catalog_, 1, "", AttemptOfByte(1)), StatusIs(StatusCode::kNotFound, HasSubstr("has replaced")));
  EXPECT_THAT(TagFacts(catalog_, 1, "a", AttemptOfByte(1)), StatusIs(StatusCode::kNotFound, HasSubstr("has replaced")));
  EXPECT_THAT(UntagFacts(catalog_, 9, "a", std::nullopt), StatusIs(StatusCode::kNotFound, HasSubstr("step 9")));
  Apply(MarkFacts(catalog_, 1, ToHex(AttemptOfByte(2).bytes), StepState::kDamaged, "bytes"));
  EXPECT_THAT(PinFacts(catalog_, 1, "", std::nullopt), StatusIs(StatusCode::kNotFound, HasSubstr("not committed")));
  // A damaged step can still be unpinned.
  EXPECT_THAT(UnpinFacts(catalog_, 1, std::nullopt), IsOk());
}

TEST_F(StepChangesTest, PinsAreRefusedThatSayTooMuch) {
  Apply(Commit(1, 1));
  EXPECT_THAT(PinFacts(catalog_, 1, std::string(kStepNoteBytesMax + 1, 'x'), std::nullopt),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most")));
  EXPECT_THAT(TagFacts(catalog_, 1, "no tag", std::nullopt), StatusIs(StatusCode::kInvalidArgument, HasSubstr("tag")));
  for (size_t i = 0; i < kTagsPerStepMax; ++i) Apply(TagFacts(catalog_, 1, fmt::format("t{}", i), std::nullopt));
  EXPECT_THAT(TagFacts(catalog_, 1, "more", std::nullopt), StatusIs(StatusCode::kOutOfRange, HasSubstr("at most")));
}

TEST_F(StepChangesTest, AMarkChangesTheStateOfItsAttempt) {
  Apply(Commit(1, 1));
  const std::string attempt = ToHex(AttemptOfByte(1).bytes);
  Apply(MarkFacts(catalog_, 1, attempt, StepState::kLost, "gone"));
  EXPECT_EQ(InfoOf(1).state, StepState::kLost);
  EXPECT_EQ(InfoOf(1).reason, "gone");
  EXPECT_THAT(*MarkFacts(catalog_, 1, attempt, StepState::kLost, "gone"), IsEmpty());
  Apply(MarkFacts(catalog_, 1, attempt, StepState::kCommitted, ""));
  EXPECT_EQ(InfoOf(1).state, StepState::kCommitted);
  EXPECT_EQ(InfoOf(1).reason, "");
  EXPECT_THAT(MarkFacts(catalog_, 1, ToHex(AttemptOfByte(2).bytes), StepState::kLost, ""),
              StatusIs(StatusCode::kNotFound, HasSubstr("no record of attempt")));
  EXPECT_THAT(MarkFacts(catalog_, 2, attempt, StepState::kLost, ""),
              StatusIs(StatusCode::kNotFound, HasSubstr("step 2")));
  Apply(Commit(2, 2));
  NotedSteps noted;
  const StepNote gone{.step = 1, .attempt = attempt, .deleted = true};
  Apply(NoteFacts(catalog_, {&gone, 1}, std::nullopt, 1000, noted));
  EXPECT_THAT(MarkFacts(catalog_, 1, attempt, StepState::kLost, ""),
              StatusIs(StatusCode::kNotFound, HasSubstr("has been deleted")));
}

TEST_F(StepChangesTest, ReportsAreRecordedOnceEach) {
  Apply(Commit(1, 1));
  Apply(Commit(2, 2));
  const std::vector<EvaluationFact> reports = {Report(1, 1, 0.5), Report(1, 1, 0.5), Report(2, 2, 0.7), Report(2, 9, 1)};
  std::vector<ReportOutcome> outcomes;
  const absl::StatusOr<Facts> facts = ReportFacts(catalog_, reports, outcomes);
  ASSERT_THAT(facts, IsOk());
  EXPECT_THAT(*facts, SizeIs(2));
  ASSERT_THAT(outcomes, SizeIs(4));
  EXPECT_TRUE(outcomes[0].status.ok() && outcomes[0].is_news);
  EXPECT_TRUE(outcomes[1].status.ok() && !outcomes[1].is_news);
  EXPECT_TRUE(outcomes[2].status.ok() && outcomes[2].is_news);
  EXPECT_THAT(outcomes[3].status, StatusIs(StatusCode::kNotFound, HasSubstr("not committed")));
  Apply(facts);
  EXPECT_EQ(InfoOf(1).metrics.at("validation/accuracy"), 0.5);
  EXPECT_THAT(*ReportFacts(catalog_, {&reports[0], 1}, outcomes), IsEmpty());
}

TEST_F(StepChangesTest, AReportThatSaysLessThanAnEarlierOneIsRefused) {
  Apply(Commit(1, 1));
  std::vector<ReportOutcome> outcomes;
  const EvaluationFact done = Report(1, 1, 0.5);
  Apply(ReportFacts(catalog_, {&done, 1}, outcomes));
  EvaluationFact skipped = done;
  skipped.evaluation = {.evaluator = "validation", .outcome = Evaluation::Outcome::kSkipped, .reason = "busy"};
  EXPECT_THAT(*ReportFacts(catalog_, {&skipped, 1}, outcomes), IsEmpty());
  EXPECT_THAT(outcomes[0].status, StatusIs(StatusCode::kAlreadyExists, HasSubstr("already reported")));
  EvaluationFact nameless = done;
  nameless.evaluation.evaluator = "";
  EXPECT_THAT(*ReportFacts(catalog_, {&nameless, 1}, outcomes), IsEmpty());
  EXPECT_THAT(outcomes[0].status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("evaluator")));
}

TEST_F(StepChangesTest, BestModesAreRecordedThatAreNew) {
  Apply(BestModesFacts(catalog_, {{"loss", BestMode::kLowest}}));
  EXPECT_THAT(*BestModesFacts(catalog_, {{"loss", BestMode::kLowest}}), IsEmpty());
  Apply(BestModesFacts(catalog_, {{"loss", BestMode::kHighest}, {"accuracy", BestMode::kHighest}}));
  const auto modes = catalog_.RecordedBestModes();
  ASSERT_THAT(modes, IsOk());
  EXPECT_THAT(*modes,
              ElementsAre(testing::Pair("accuracy", BestMode::kHighest), testing::Pair("loss", BestMode::kHighest)));
}

class NoteFactsTest : public StepChangesTest {
 protected:
  void SetUp() override {
    for (uint8_t step = 1; step <= 4; ++step) Apply(Commit(step, step));
  }
  static StepNote Deletion(uint8_t step) {
    return {.step = step, .attempt = ToHex(AttemptOfByte(step).bytes), .deleted = true, .reason = "by the rules"};
  }
  static StepNote Kept(uint8_t step, std::string reason) {
    return {.step = step, .attempt = ToHex(AttemptOfByte(step).bytes), .reason = std::move(reason)};
  }
  absl::StatusOr<Facts> Note(const std::vector<StepNote>& notes, std::optional<int64_t> discard_after = std::nullopt,
                             size_t bytes_max = 1 << 20) {
    return NoteFacts(catalog_, notes, discard_after, bytes_max, noted_);
  }
  NotedSteps noted_;
};

TEST_F(NoteFactsTest, DeletesAndNotesWhyOthersStay) {
  Apply(Note({Deletion(1), Kept(2, "every second one")}));
  EXPECT_THAT(noted_.deleted, ElementsAre(1));
  EXPECT_EQ(noted_.notes, 2u);
  EXPECT_EQ(InfoOf(1).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(1).reason, "by the rules");
  EXPECT_EQ(InfoOf(2).kept, "every second one");
  EXPECT_THAT(*Note({Deletion(1), Kept(2, "every second one")}), IsEmpty());
}

TEST_F(NoteFactsTest, LeavesPinnedStepsTheLatestAndOtherAttempts) {
  Apply(PinFacts(catalog_, 1, "", std::nullopt));
  StepNote other = Deletion(2);
  other.attempt = ToHex(AttemptOfByte(99).bytes);
  EXPECT_THAT(*Note({Deletion(1), other, Deletion(4)}), IsEmpty());
  EXPECT_EQ(noted_.notes, 3u);
  EXPECT_THAT(noted_.deleted, IsEmpty());
}

TEST_F(NoteFactsTest, TakesAsManyAsThereIsRoomFor) {
  EXPECT_THAT(*Note({Deletion(1), Deletion(2), Deletion(3)}, std::nullopt, /*bytes_max=*/1), SizeIs(1));
  EXPECT_EQ(noted_.notes, 1u);
  // A note on a step that stays has no part in that.
  const size_t bytes = EncodeFact(Note({Deletion(1)})->front())->size();
  EXPECT_THAT(*Note({Deletion(1), Kept(2, std::string(500, 'x'))}, std::nullopt, bytes + 1), SizeIs(1));
  EXPECT_EQ(noted_.notes, 1u);
}

TEST_F(NoteFactsTest, DiscardsTheEndOfTheHistoryUpToThePinnedStep) {
  Apply(PinFacts(catalog_, 3, "", std::nullopt));
  Apply(Note({Deletion(4), Deletion(3), Deletion(2)}, /*discard_after=*/1));
  EXPECT_THAT(noted_.deleted, ElementsAre(4));
  EXPECT_EQ(noted_.stays, 3);
  EXPECT_EQ(*catalog_.LatestCommitted(), 3);
}

TEST_F(NoteFactsTest, DiscardsNothingWhereNoStepWouldRemain) {
  EXPECT_THAT(Note({Deletion(4)}, /*discard_after=*/0),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no committed step would remain")));
}

TEST_F(StepChangesTest, ADeletionIsAskedForOfWhatIsCommitted) {
  Apply(Commit(1, 1));
  DeletionRequestFact request{
      .id = ToHex(AttemptOfByte(7).bytes), .step = 1, .attempt = ToHex(AttemptOfByte(1).bytes), .reason = "by hand"};
  Apply(DeletionRequestFacts(catalog_, request));
  ASSERT_THAT(*catalog_.Requests(), SizeIs(1));
  EXPECT_EQ((*catalog_.Requests())[0].reason, "by hand");
  request.attempt = ToHex(AttemptOfByte(2).bytes);
  EXPECT_THAT(DeletionRequestFacts(catalog_, request), StatusIs(StatusCode::kNotFound, HasSubstr("not committed")));
  catalog_.Apply(Facts{AnswerFact{.id = request.id, .refused = "it is pinned"}});
  EXPECT_THAT(*catalog_.Requests(), IsEmpty());
}

}  // namespace
}  // namespace tidemark::storage
