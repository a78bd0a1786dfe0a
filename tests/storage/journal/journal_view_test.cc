#include "storage/journal/journal_view.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/journal/journal_testing.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Facts(const JournalView& view) {
  std::vector<std::string> facts;
  for (const KnownEntry& known : view.entries()) {
    if (known.counts) facts.insert(facts.end(), known.entry.facts.begin(), known.entry.facts.end());
  }
  return facts;
}

class JournalViewTest : public testing::Test {
 protected:
  // Adds an entry whose writer knew all before it to be durable.
  JournalEntry Append(const JournalEntry& before, uint8_t id, std::string fact) {
    JournalEntry entry = made_.After(before, id, std::move(fact));
    made_.Put({.entry = entry});
    return entry;
  }
  // Adds an entry whose writer had read `before` and `last`, and knew the one before `last` to be durable.
  JournalEntry AppendCarrying(const JournalEntry& last, uint8_t id, std::string fact) {
    JournalEntry entry = made_.After(last, id, std::move(fact));
    entry.durable = last.number - 1;
    made_.Put({.entry = entry, .carried = {last}});
    return entry;
  }

  MadeJournal made_;
  JournalView view_;
};

TEST_F(JournalViewTest, OfAnEmptyJournalKnowsNothing) {
  EXPECT_THAT(view_.Learn({}), IsOk());
  EXPECT_EQ(view_.last(), JournalPlace{});
  EXPECT_EQ(view_.established(), 0u);
}

TEST_F(JournalViewTest, KnowsEntriesInOrderAndWhatTheirWritersStated) {
  const JournalEntry first = Append({}, 1, "first");
  const JournalEntry second = Append(first, 2, "second");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second"));
  EXPECT_EQ(view_.last(), (JournalPlace{.number = 2, .digest = DigestOfEntry(second)}));
  EXPECT_EQ(view_.established(), 1u);  // the second states it of the first
  Append(second, 3, "third");
  ASSERT_THAT(view_.Learn(made_.From(2)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second", "third"));
  EXPECT_EQ(view_.Find(TestEntryId(3))->place.number, 3u);
  EXPECT_EQ(view_.Find(TestEntryId(4)), nullptr);
}

TEST_F(JournalViewTest, TakesAMissingEntryFromTheOneThatCarriesIt) {
  const JournalEntry first = Append({}, 1, "first");
  AppendCarrying(first, 2, "second");
  made_.Remove(1);
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second"));
}

TEST_F(JournalViewTest, TakesADamagedEntryFromTheOneThatCarriesIt) {
  const JournalEntry first = Append({}, 1, "first");
  AppendCarrying(first, 2, "second");
  made_.At(1)[20] ^= 1;
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second"));
}

// A power loss took number 1, and a process that saw an old listing took it again.
TEST_F(JournalViewTest, ACopyOutranksAFileThatTookTheNumberAgain) {
  const JournalEntry first = Append({}, 1, "first");
  Append({}, 9, "usurper");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("usurper"));
  AppendCarrying(first, 2, "second");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second"));
  EXPECT_EQ(view_.Find(TestEntryId(9)), nullptr);
}

// The copies that the usurper of number 2 carries say nothing.
TEST_F(JournalViewTest, CopiesOfAFileThatTookANumberAgainAreNotBelieved) {
  const JournalEntry first = Append({}, 1, "first");
  const JournalEntry second = AppendCarrying(first, 2, "second");
  JournalEntry third = made_.After(second, 3, "third");
  third.durable = 1;
  made_.Put({.entry = third, .carried = {second}});
  JournalEntry other = made_.After({}, 8, "other");
  JournalEntry usurper = made_.After(other, 9, "usurper");
  usurper.durable = 0;
  made_.Put({.entry = usurper, .carried = {other}});
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second", "third"));
}

// As a file server does that acknowledges operations and loses them.
TEST_F(JournalViewTest, ForgetsProvisionalEntriesWhoseNumbersWereTakenByOthers) {
  const JournalEntry first = Append({}, 1, "first");
  const JournalEntry second = AppendCarrying(first, 2, "second");
  AppendCarrying(second, 3, "third");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  made_.Remove(3);
  ASSERT_THAT(view_.Learn(made_.From(view_.established() + 1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second", "third")) << "the listing may be old";
  const EntryNumber established = view_.established();
  made_.Remove(2);
  Append(first, 9, "other");
  ASSERT_THAT(view_.Learn(made_.From(established + 1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "other"));
  EXPECT_EQ(view_.last().number, 2u);
}

TEST_F(JournalViewTest, NamesAnEntryThatIsMissing) {
  Append(Append({}, 1, "first"), 2, "second");
  made_.Remove(1);
  EXPECT_THAT(
      view_.Learn(made_.From(1)),
      StatusIs(
          absl::StatusCode::kDataLoss,
          HasSubstr("journal entry 1 cannot be read, and no later entry has a copy of it: there is no such file")));
  EXPECT_EQ(view_, JournalView());
}

TEST_F(JournalViewTest, NamesAnEntryThatIsDamagedAndWhy) {
  Append(Append({}, 1, "first"), 2, "second");
  made_.At(2).pop_back();
  EXPECT_THAT(view_.Learn(made_.From(1)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("journal entry 2 cannot be read")));
  EXPECT_EQ(view_, JournalView());
}

TEST_F(JournalViewTest, SaysThatAnEntryIsOfANewerVersion) {
  const JournalEntry first = Append({}, 1, "first");
  AppendCarrying(first, 2, "second");
  std::string newer = made_.At(2);
  newer[8] = 2;
  newer.resize(newer.size() - 8);
  const uint64_t checksum = ChecksumOf(std::as_bytes(std::span(newer)));
  newer.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  made_.PutBytes(2, newer);
  EXPECT_THAT(view_.Learn(made_.From(1)), StatusIs(absl::StatusCode::kUnimplemented, testing::_));
  EXPECT_EQ(view_, JournalView());
}

TEST_F(JournalViewTest, RefusesAnEntryThatFollowsAnotherOne) {
  const JournalEntry first = Append({}, 1, "first");
  JournalEntry stranger = made_.After(made_.After({}, 7, "another"), 2, "second");
  made_.Put({.entry = stranger});
  EXPECT_THAT(view_.Learn(made_.From(1)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("journal entry 2 was written after another entry 1 than the one that is read")));
  EXPECT_EQ(view_, JournalView());
}

// An index that has applied entries of another history must not be brought up to date from this one.
TEST_F(JournalViewTest, RefusesAPlaceOfAnotherHistory) {
  const JournalEntry first = Append({}, 1, "first");
  Append(first, 2, "second");
  JournalView other(JournalPlace{.number = 1, .digest = DigestOfEntry(made_.After({}, 7, "another"))});
  EXPECT_THAT(other.Learn(made_.From(2)), StatusIs(absl::StatusCode::kDataLoss, testing::_));
  JournalView same(JournalPlace{.number = 1, .digest = DigestOfEntry(first)});
  EXPECT_THAT(same.Learn(made_.From(2)), IsOk());
  EXPECT_THAT(Facts(same), ElementsAre("second"));
}

TEST_F(JournalViewTest, AnOldListingTakesNothingBack) {
  const JournalEntry first = Append({}, 1, "first");
  const std::vector<std::optional<std::string>> old = made_.From(1);
  AppendCarrying(first, 2, "second");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  ASSERT_THAT(view_.Learn(old), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second"));
  ASSERT_THAT(view_.Learn({}), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first", "second"));
}

TEST_F(JournalViewTest, LearnsDurabilityOfItsOwnHistoryOnly) {
  const JournalEntry first = Append({}, 1, "first");
  const JournalEntry second = AppendCarrying(first, 2, "second");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_EQ(view_.established(), 0u);
  view_.LearnDurable({.number = 2, .digest = DigestOfEntry(first)});
  view_.LearnDurable({.number = 3, .digest = DigestOfEntry(second)});
  EXPECT_EQ(view_.established(), 0u);
  view_.LearnDurable({.number = 2, .digest = DigestOfEntry(second)});
  EXPECT_EQ(view_.established(), 2u);
  view_.LearnDurable({.number = 1, .digest = DigestOfEntry(first)});
  EXPECT_EQ(view_.established(), 2u);
}

TEST_F(JournalViewTest, GoesOnAfterEntriesThatWereDropped) {
  const JournalEntry first = Append({}, 1, "first");
  const JournalEntry second = Append(first, 2, "second");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  view_.LearnDurable(view_.last());
  view_.Drop(2);
  EXPECT_THAT(view_.entries(), IsEmpty());
  EXPECT_EQ(view_.last().digest, DigestOfEntry(second));
  Append(second, 3, "third");
  ASSERT_THAT(view_.Learn(made_.From(3)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("third"));
}

TEST_F(JournalViewTest, DropsNothingThatMayBeLost) {
  Append({}, 1, "first");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_DEATH(view_.Drop(1), "journal entries are dropped that may not be durable");
}

TEST_F(JournalViewTest, CountsAHoldersEntriesUntilANewerEpochBegins) {
  JournalEntry last;
  uint8_t id = 0;
  const auto append = [&](uint64_t epoch, bool begins, std::string fact) {
    last = made_.After(last, ++id, std::move(fact));
    last.epoch = epoch;
    last.begins_epoch = begins;
    made_.Put({.entry = last});
  };
  append(1, true, "epoch 1");
  append(1, false, "a of 1");
  append(3, true, "epoch 3, without a 2");
  append(2, true, "epoch 2, late");
  append(1, false, "b of 1");
  append(0, false, "of anybody");
  append(3, false, "a of 3");
  append(3, true, "epoch 3 again");
  append(4, false, "of 4, which has not begun");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("epoch 1", "a of 1", "epoch 3, without a 2", "of anybody", "a of 3"));
  EXPECT_EQ(view_.last().epoch, 3u);
}

TEST_F(JournalViewTest, CountsAnEntryOnceThatWasAppendedTwice) {
  const JournalEntry first = Append({}, 1, "first");
  Append(first, 1, "first");
  ASSERT_THAT(view_.Learn(made_.From(1)), IsOk());
  EXPECT_THAT(Facts(view_), ElementsAre("first"));
  EXPECT_EQ(view_.last().number, 2u);
}

}  // namespace
}  // namespace tidemark::storage
