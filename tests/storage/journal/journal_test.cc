#include "storage/journal/journal.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/forwarding_file_system.h"
#include "storage/journal/journal_reader.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/stale_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/journal/journal_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class JournalTest : public testing::Test {
 protected:
  std::unique_ptr<Journal> Open(const JournalPlace& from = {}) {
    auto journal = Journal::Open(files_, "/journal", from, {.create = true});
    EXPECT_THAT(journal, IsOk());
    return *std::move(journal);
  }

  SimulatedDisk disk_;
  FailingFileSystem files_{disk_};
};

TEST_F(JournalTest, IsNotThereUnlessItIsMade) {
  EXPECT_THAT(Journal::Open(files_, "/journal", {}).status(), StatusIs(StatusCode::kNotFound, HasSubstr("/journal")));
  Open();
  EXPECT_THAT(Journal::Open(files_, "/journal", {}), IsOk());
}

TEST_F(JournalTest, GivesWhatWasAppendedInOrder) {
  const auto journal = Open();
  for (const char* fact : {"one", "two", "three"}) EXPECT_THAT(AppendFact(*journal, fact).status, IsOk());
  EXPECT_THAT(Facts(*journal), ElementsAre("one", "two", "three"));
  EXPECT_THAT(Facts(*journal), IsEmpty()) << "visited once";
  EXPECT_THAT(disk_.TypeOf("/journal/0000/00/0000000003"), IsOk());
}

// The handle's numbers say nothing in the new journal, also where the folder is replaced in the middle of an append.
TEST_F(JournalTest, AppendsNothingToAJournalThatWasMadeAnew) {
  for (const std::string when : {"before", "Create", "SyncData", "OpenDirectory"}) {
    SCOPED_TRACE(when);
    const auto journal = Open();
    ASSERT_TRUE(AppendFact(*journal, "old").ok());
    EXPECT_EQ(journal->IsReplaced().value(), false);
    bool replaced = false;
    const auto replace = [&] {
      replaced = true;
      ASSERT_THAT(disk_.Rename("/journal", "/journal-" + when), IsOk());
      ASSERT_TRUE(AppendFact(*Journal::Open(disk_, "/journal", {}, {.create = true}).value(), "new").ok());
    };
    if (when == "before") replace();
    files_.SetGate([&](const std::string& operation, const std::string&) {
      if (operation == when && !replaced) replace();
    });
    const Appended appended = AppendFact(*journal, "lost");
    files_.SetGate(nullptr);
    EXPECT_TRUE(replaced);
    EXPECT_FALSE(appended.ok());
    EXPECT_FALSE(appended.status.ok());
    EXPECT_EQ(journal->IsReplaced().value(), true);
    EXPECT_THAT(Facts(*Open()), ElementsAre("new?"));
    EXPECT_THAT(disk_.TypeOf("/journal/0000/00/0000000002").status(), StatusIs(StatusCode::kNotFound, testing::_));
    ASSERT_THAT(disk_.Rename("/journal", "/journal-new-" + when), IsOk());
  }
}

TEST_F(JournalTest, ALookWithoutNewsCostsOneOpen) {
  const auto journal = Open();
  EXPECT_TRUE(AppendFact(*journal, "one").ok());
  Facts(*journal);
  files_.Reset();
  Facts(*journal);
  EXPECT_THAT(files_.operations(), ElementsAre("OpenForRead"));
}

// Another process cannot know that the last append was synced.
TEST_F(JournalTest, AnEntryIsVisitedAgainUntilItIsEstablished) {
  const auto writer = Open();
  const auto reader = Open();
  EXPECT_TRUE(AppendFact(*writer, "one").ok());
  EXPECT_THAT(Facts(*reader), ElementsAre("one?"));
  EXPECT_THAT(Facts(*reader), ElementsAre("one?"));
  EXPECT_TRUE(AppendFact(*writer, "two").ok());
  EXPECT_THAT(Facts(*reader), ElementsAre("one", "two?"));
  EXPECT_THAT(Facts(*reader), ElementsAre("two?"));
  EXPECT_TRUE(reader->Settle().ok());
  EXPECT_THAT(Facts(*reader), ElementsAre("two", "(settles)"));
  const size_t before = reader->last().number;
  EXPECT_TRUE(reader->Settle().ok());
  EXPECT_EQ(reader->last().number, before) << "nothing to settle";
}

TEST_F(JournalTest, TheCheckSeesWhatOthersHaveAppendedMeanwhile) {
  const auto journal = Open();
  const auto other = Open();
  std::vector<EntryNumber> seen;
  const auto check = [&](const JournalView& view) {
    if (seen.empty()) {
      EXPECT_TRUE(AppendFact(*other, "first").ok());
    }
    seen.push_back(view.last().number);
    return seen.size() == 1 ? absl::OkStatus() : absl::FailedPreconditionError("too late");
  };
  const Appended appended = journal->Append({.facts = {"second"}}, check);
  EXPECT_EQ(appended.result, Appender::Result::kRefused);
  EXPECT_THAT(appended.status, StatusIs(StatusCode::kFailedPrecondition, "too late"));
  EXPECT_THAT(seen, ElementsAre(0u, 1u));
  EXPECT_THAT(Facts(*other), ElementsAre("first"));
}

TEST_F(JournalTest, ANewerEpochRefusesTheOlderHolder) {
  const auto older = Open();
  const auto newer = Open();
  const Appended first = older->Append({.kind = AppendDraft::Kind::kBeginsEpoch}, NoCheck);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.place.epoch, 1u);
  ASSERT_TRUE(newer->Append({.kind = AppendDraft::Kind::kBeginsEpoch}, NoCheck).ok());
  const Appended late = older->Append({.kind = AppendDraft::Kind::kHolder, .epoch = 1, .facts = {"late"}}, NoCheck);
  EXPECT_EQ(late.result, Appender::Result::kRefused);
  EXPECT_THAT(late.status, StatusIs(StatusCode::kAborted, HasSubstr("its epoch is 2")));
}

TEST_F(JournalTest, GoesOnFromAPlace) {
  const auto journal = Open();
  std::vector<JournalPlace> places;
  for (const char* fact : {"one", "two", "three"}) places.push_back(AppendFact(*journal, fact).place);
  EXPECT_THAT(Facts(*Open(places[1])), ElementsAre("three?"));
  const auto last = Open(places[2]);
  EXPECT_THAT(Facts(*last), IsEmpty());
  EXPECT_EQ(AppendFact(*last, "four").place.number, 4u);
}

TEST_F(JournalTest, RefusesAPlaceOfAnotherHistory) {
  const auto journal = Open();
  JournalPlace place = AppendFact(*journal, "one").place;
  AppendFact(*journal, "two");
  const auto status = [&] { return Journal::Open(files_, "/journal", place).status(); };
  place.digest.bytes[0] ^= 1;
  EXPECT_THAT(status(), StatusIs(StatusCode::kOutOfRange, HasSubstr("entry 1 with the digest")));
  place.number = 3;
  EXPECT_THAT(status(), StatusIs(StatusCode::kOutOfRange, HasSubstr("entry 3 with the digest")));
}

TEST_F(JournalTest, APlaceWhoseFileIsDamagedIsProvenByTheEntryAfterIt) {
  const auto journal = Open();
  const JournalPlace one = AppendFact(*journal, "one").place;
  const JournalPlace two = AppendFact(*journal, "two").place;
  for (const JournalPlace& place : {one, two}) {
    auto file = disk_.OpenForRewrite(fmt::format("/journal/0000/00/{:010}", place.number), /*direct=*/false);
    ASSERT_THAT((*file)->Truncate(20), IsOk());
  }
  EXPECT_THAT(Journal::Open(files_, "/journal", two).status(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("/journal/0000/00/0000000002: journal entry 2")));
  EXPECT_THAT(Journal::Open(files_, "/journal", one).status(), StatusIs(StatusCode::kDataLoss, HasSubstr("entry 1")));
  AppendFact(*journal, "three");
  EXPECT_THAT(Journal::Open(files_, "/journal", two), IsOk());
}

TEST_F(JournalTest, AMissingEntryIsNamed) {
  const auto journal = Open();
  for (const char* fact : {"one", "two", "three"}) AppendFact(*journal, fact);
  ASSERT_THAT(disk_.RemoveFile("/journal/0000/00/0000000002"), IsOk());
  std::vector<std::string> facts;
  EXPECT_THAT(Open()->Look([&](const KnownEntry& known, bool) { facts.push_back(known.entry.facts[0]); }),
              StatusIs(StatusCode::kDataLoss,
                       "read /journal: journal entry 2 cannot be read, and no later entry has a "
                       "copy of it: there is no such file, or a file server does not show it yet"));
}

// As a client of a file server does that remembers that names were missing.
TEST_F(JournalTest, AnEntryThatIsListedAndCannotBeOpenedIsNoLoss) {
  const auto journal = Open();
  for (const char* fact : {"one", "two", "three"}) AppendFact(*journal, fact);
  const auto open = [&](const std::string& hidden) {
    FailingFileSystem client(disk_);
    client.SetRule([&](const FailingFileSystem::Call& call) {
      return absl::StrContains(call.path, hidden) ? absl::NotFoundError("remembered") : absl::OkStatus();
    });
    JournalFiles files(client, "/journal");
    JournalView view;
    return ReadEntries(files, 3, view, [] {});
  };
  EXPECT_THAT(
      open("0000000002"),
      StatusIs(StatusCode::kAborted, AllOf(HasSubstr("read /journal: journal entry 2 cannot be read now: "
                                                     "/journal/0000/00/0000000002 is listed, and cannot be opened"),
                                           HasSubstr("try again"))));
  EXPECT_THAT(open("/journal/0000/00"), StatusIs(StatusCode::kAborted, HasSubstr("entry 1 cannot be read now")));
  EXPECT_THAT(open("/journal/0000"), StatusIs(StatusCode::kAborted, HasSubstr("/journal/0000 is listed")));
}

// A copy of what is missing cannot be in a file so far behind. In between nothing is looked for one by one.
TEST_F(JournalTest, AFileFarBehindTheOthersCostsLittle) {
  {
    const auto journal = Open();
    for (const char* fact : {"a", "b"}) ASSERT_TRUE(AppendFact(*journal, fact).ok());
  }
  for (const EntryNumber number : {(EntryNumber{1} << 18) + 5, ~EntryNumber{0}}) {
    SCOPED_TRACE(number);
    JournalFiles files(disk_, "/journal");
    ASSERT_THAT(files.MakeFolder(number), IsOk());
    ASSERT_THAT(disk_.Create(files.PathOf(number), /*direct=*/false), IsOk());
    FailingFileSystem counted(disk_);
    const auto journal = Journal::Open(counted, "/journal", JournalPlace());
    ASSERT_THAT(journal, IsOk());
    std::vector<std::string> facts;
    EXPECT_THAT((*journal)->Look([&](const KnownEntry& known, bool) { facts.push_back(known.entry.facts[0]); }),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("journal entry 3 cannot be read")));
    EXPECT_THAT(facts, ElementsAre("a"));
    EXPECT_LT(counted.calls().size(), 1'000u);
    ASSERT_THAT(disk_.RemoveFile(files.PathOf(number)), IsOk());
  }
}

TEST_F(JournalTest, GoesOverTheEndsOfFolders) {
  const auto journal = Open();
  std::vector<std::string> expected;
  for (int i = 1; i <= 130; ++i) {
    expected.push_back(fmt::format("fact {}", i));
    ASSERT_TRUE(AppendFact(*journal, expected.back()).ok());
  }
  EXPECT_THAT(disk_.TypeOf("/journal/0000/02/0000000129"), IsOk());
  const auto reader = Open();
  std::vector<std::string> last = {"fact 130?"};
  expected.pop_back();
  expected.insert(expected.end(), last.begin(), last.end());
  EXPECT_EQ(Facts(*reader), expected);
}

// The sync of the entry fails once. The entry that settles it is synced.
// None of them knows that the entries before its own survive.
TEST_F(JournalTest, ProcessesThatAppendOneEntryEachCarryABoundedNumber) {
  std::vector<std::string> facts;
  for (int i = 0; i < 300; ++i) {
    facts.push_back(fmt::format("fact {}", i));
    ASSERT_TRUE(AppendFact(*Open(), facts.back()).ok());
  }
  std::vector<std::string> found;
  for (std::string fact : Facts(*Open())) {
    if (fact.ends_with("?")) fact.pop_back();
    if (fact != "(settles)") found.push_back(fact);
  }
  EXPECT_EQ(found, facts);
  uint64_t longest = 0;
  for (EntryNumber number = 1; number <= 300; ++number) {
    const auto file = disk_.OpenForRead(JournalFiles(disk_, "/journal").PathOf(number), /*direct=*/false);
    ASSERT_THAT(file, IsOk()) << number;
    longest = std::max(longest, *(*file)->Size());
  }
  EXPECT_LT(longest, 8192u);
}

TEST_F(JournalTest, AnAppendWhoseSyncFailsIsSettled) {
  const auto journal = Open();
  ASSERT_TRUE(AppendFact(*journal, "one").ok());
  files_.FailOperation("SyncDirectory", absl::InternalError("EIO"));
  const Appended appended = AppendFact(*journal, "two");
  EXPECT_TRUE(appended.ok()) << appended.status;
  EXPECT_EQ(appended.place.number, 2u);
  EXPECT_THAT(Facts(*journal), ElementsAre("one", "two", "(settles)"));
}

TEST_F(JournalTest, AnAppendGivesUpIfNoSyncWorks) {
  const auto journal = Open();
  ASSERT_TRUE(AppendFact(*journal, "one").ok());
  files_.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "SyncDirectory" ? absl::InternalError("EIO of " + call.path) : absl::OkStatus();
  });
  const Appended appended = AppendFact(*journal, "two");
  EXPECT_EQ(appended.result, Appender::Result::kUnknown);
  EXPECT_THAT(appended.status, StatusIs(StatusCode::kInternal,
                                        "append to /journal: given up before entry 6, after 4 tries: "
                                        "EIO of /journal/0000/00"));
  files_.Reset();
  EXPECT_TRUE(AppendFact(*journal, "three").ok());
  EXPECT_THAT(Facts(*journal), ElementsAre("one", "two", "(settles)", "(settles)", "(settles)", "three"));
}

// As a file server may answer whose name is taken, and does not show it.
TEST_F(JournalTest, AnAppendGivesUpIfEveryNameIsRefused) {
  const auto journal = Open();
  ASSERT_TRUE(AppendFact(*journal, "one").ok());
  files_.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "RenameToNew" ? absl::AlreadyExistsError("there: " + call.path) : absl::OkStatus();
  });
  const Appended appended = AppendFact(*journal, "two");
  EXPECT_EQ(appended.result, Appender::Result::kFailed);
  EXPECT_THAT(appended.status, StatusIs(StatusCode::kUnavailable,
                                        "append to /journal: given up before entry 2, after 100 tries: "
                                        "there: /journal/0000/00/0000000002"));
  files_.Reset();
  EXPECT_EQ(AppendFact(*journal, "two").place.number, 2u);
}

// The name was given, and the answer was that it exists: as from a server that does a call twice.
TEST_F(JournalTest, AnAppendKnowsItsOwnEntryWhateverTheNamingAnswered) {
  const auto journal = Open();
  ASSERT_TRUE(AppendFact(*journal, "one").ok());
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.operation != "RenameToNew") return absl::OkStatus();
    const auto entries = disk_.ListDirectory("/journal/0000/00");
    for (const DirectoryEntry& entry : *entries) {
      if (!entry.name.starts_with("new-")) continue;
      EXPECT_THAT(disk_.Rename("/journal/0000/00/" + entry.name, call.path), IsOk());
    }
    return absl::AlreadyExistsError("there");
  });
  EXPECT_EQ(AppendFact(*journal, "two").place.number, 2u);
  files_.Reset();
  EXPECT_THAT(Facts(*journal), ElementsAre("one", "two"));
}

// An entry that was lost with the power, and is carried by the one after it; the listing after the naming is the first
// to show that one.
TEST_F(JournalTest, ATakenNumberIsSeenByTheLookAfterTheNaming) {
  const auto journal = Open();
  ASSERT_TRUE(AppendFact(*journal, "one").ok());
  MadeJournal made;
  const auto first = DecodeEntryFile(1, *ReadSmallFile(disk_, "/journal/0000/00/0000000001", 10000));
  ASSERT_THAT(first, IsOk());
  const JournalEntry lost = made.After(first->entry, 2, "lost");
  JournalEntry carrier = made.After(lost, 3, "carrier");
  carrier.durable = 1;
  const std::string bytes = *EncodeEntryFile({.entry = carrier, .carried = {lost}});
  auto file = disk_.Create("/journal/0000/00/0000000003", /*direct=*/false);
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
  EXPECT_EQ(AppendFact(*journal, "two").place.number, 4u);
  EXPECT_THAT(Facts(*journal), ElementsAre("one", "lost", "carrier", "two"));
  EXPECT_THAT(Facts(*Open()), ElementsAre("one", "lost?", "carrier?", "two?"));
}

TEST_F(JournalTest, LeavesNoFileBehindAnAppendThatFails) {
  const auto journal = Open();
  ASSERT_TRUE(AppendFact(*journal, "one").ok());
  const DiskImage::Files before = disk_.image().Contents();
  for (const char* operation : {"Create", "WriteAt", "SyncData", "OpenDirectory", "RenameToNew"}) {
    files_.FailOperation(operation, absl::ResourceExhaustedError("full"));
    const Appended appended = AppendFact(*journal, "two");
    EXPECT_EQ(appended.result, Appender::Result::kFailed) << operation;
    EXPECT_THAT(appended.status, StatusIs(StatusCode::kResourceExhausted, "full"));
    EXPECT_EQ(disk_.image().Contents(), before) << operation;
  }
  files_.Reset();
  EXPECT_EQ(AppendFact(*journal, "two").place.number, 2u);
}

// Threads that share two of three handles, on a real disk.
TEST(JournalThreadsTest, EveryAppendHasItsPlace) {
  constexpr int kAppends = 30;
  const TestDirectory directory;
  const std::string path = directory / "journal";
  std::vector<std::unique_ptr<Journal>> journals;
  for (int i = 0; i < 3; ++i) {
    journals.push_back(Journal::Open(PosixFileSystem(), path, {}, {.create = true}).value());
  }
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 5; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kAppends; ++i) {
        const Appended appended = AppendFact(*journals[t % journals.size()], fmt::format("{} of {}", i, t));
        EXPECT_TRUE(appended.ok()) << appended.status;
        if (i % 7 == 0) {
          EXPECT_THAT(journals[t % journals.size()]->Look([](const KnownEntry&, bool) {}), IsOk());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto reader = Journal::Open(PosixFileSystem(), path, {}).value();
  std::vector<int> next(threads.size());
  size_t facts = 0;
  EXPECT_THAT(reader->Look([&](const KnownEntry& known, bool) {
    ASSERT_TRUE(known.counts);
    int i = 0;
    size_t t = 0;
    ASSERT_EQ(std::sscanf(known.entry.facts[0].c_str(), "%d of %zu", &i, &t), 2);
    EXPECT_EQ(i, next[t]++) << "of " << t;
    ++facts;
  }),
              IsOk());
  EXPECT_EQ(facts, kAppends * threads.size());
}

// As on a file server whose answer is lost.
class DenyingFileSystem final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  absl::Status RenameToNew(const std::string& from, const std::string& to) override {
    absl::Status status = other().RenameToNew(from, to);
    return status.ok() && denies_ ? absl::UnavailableError("the server does not answer") : status;
  }
  void Deny() { denies_ = true; }

 private:
  bool denies_ = false;
};

TEST(OldJournalListingTest, DoesNotHideAnEntryWhoseNamingDeniedItsSuccess) {
  SimulatedDisk disk;
  DenyingFileSystem denying(disk);
  StaleFileSystem files(denying, [](const std::string&) { return 100; });
  const auto journal = Journal::Open(files, "/journal", {}, {.create = true, .holds = true}).value();
  EXPECT_TRUE(AppendFact(*journal, "a").ok());
  // What is written over a spare changes no name before the naming.
  for (int i = 0; i < 2; ++i) ASSERT_THAT(journal->Maintain(), IsOk());
  ASSERT_THAT(files.ListDirectory("/journal/0000/00"), IsOk());
  denying.Deny();
  const Appended appended = AppendFact(*journal, "b");
  EXPECT_EQ(appended.result, Appender::Result::kEstablished) << appended.status;
  const auto reader = Journal::Open(disk, "/journal", {}).value();
  EXPECT_THAT(Facts(*reader), ElementsAre("a", "b?"));
}

TEST(OldJournalListingTest, IsNotBelievedWhereItLacksAPlaceThatWasApplied) {
  SimulatedDisk disk;
  StaleFileSystem files(disk, [](const std::string&) { return 100; });
  const auto journal = Journal::Open(disk, "/journal", {}, {.create = true}).value();
  EXPECT_TRUE(AppendFact(*journal, "a").ok());
  ASSERT_THAT(files.ListDirectory("/journal/0000/00"), IsOk());
  EXPECT_TRUE(AppendFact(*journal, "b").ok());
  EXPECT_THAT(Journal::Open(files, "/journal", journal->last(), {}),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("entry 2")))
      << "who does not append makes no files";
  EXPECT_THAT(Journal::Open(files, "/journal", journal->last(), {.create = true, .holds = true}), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
