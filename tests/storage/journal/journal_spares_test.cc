#include "storage/journal/journal_spares.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/journal/journal.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/journal/journal_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class JournalSparesTest : public testing::Test {
 protected:
  std::unique_ptr<Journal> Hold() {
    auto journal = Journal::Open(files_, "/journal", {}, {.create = true, .holds = true});
    EXPECT_THAT(journal, IsOk());
    EXPECT_THAT((*journal)->Look([](const KnownEntry&, bool) {}), IsOk());
    return *std::move(journal);
  }
  std::vector<std::string> Spares(const std::string& folder = "00") {
    std::vector<std::string> paths;
    const auto entries = disk_.ListDirectory("/journal/0000/" + folder);
    EXPECT_THAT(entries, IsOk());
    for (const DirectoryEntry& entry : *entries) {
      if (entry.name.starts_with(kSparePrefix)) paths.push_back(fmt::format("/journal/0000/{}/{}", folder, entry.name));
    }
    return paths;
  }
  // No new file or folder has room. What is there can be written over and renamed.
  void FillDisk() {
    files_.SetRule([this](const FailingFileSystem::Call& call) {
      const bool makes = call.operation == "Create" || call.operation == "CreateDirectory";
      return makes && !disk_.TypeOf(call.path).ok() ? absl::ResourceExhaustedError("full: " + call.path)
                                                    : absl::OkStatus();
    });
  }
  Appended FreeRoom(Journal& journal, std::string fact) {
    return journal.Append({.facts = {std::move(fact)}}, NoCheck, Journal::Room::kReserve);
  }

  SimulatedDisk disk_;
  FailingFileSystem files_{disk_};
};

TEST_F(JournalSparesTest, AreFourAtOnceThenTwoMoreInEachCallUpToSixteen) {
  const auto journal = Hold();
  EXPECT_THAT(journal->Maintain(), IsOk());
  EXPECT_EQ(Spares().size(), 4u);
  for (size_t expected = 6; expected <= 16; expected += 2) {
    EXPECT_THAT(journal->Maintain(), IsOk());
    EXPECT_EQ(Spares().size(), expected);
  }
  EXPECT_THAT(journal->Maintain(), IsOk());
  EXPECT_EQ(Spares().size(), 16u);
  const auto tool = Journal::Open(files_, "/journal", {});
  EXPECT_THAT((*tool)->Maintain(), IsOk());
  EXPECT_TRUE(AppendFact(**tool, "one").ok());
  EXPECT_EQ(Spares().size(), 16u) << "a tool takes none and makes none";
}

TEST_F(JournalSparesTest, AnAppendIsWrittenOverOne) {
  const auto journal = Hold();
  for (int i = 0; i < 2; ++i) ASSERT_THAT(journal->Maintain(), IsOk());
  ASSERT_EQ(Spares().size(), 6u);
  files_.Reset();
  EXPECT_TRUE(AppendFact(*journal, "one").ok());
  EXPECT_THAT(files_.operations(), Contains("OpenForRewrite"));
  EXPECT_THAT(files_.operations(), Not(Contains("Create")));
  EXPECT_EQ(Spares().size(), 5u);
  EXPECT_EQ(ReadSmallFile(disk_, "/journal/0000/00/0000000001", 10000)->size(), kSpareBytes);
  const auto reader = Journal::Open(files_, "/journal", {});
  EXPECT_THAT(Facts(**reader), testing::ElementsAre("one?"));
}

TEST_F(JournalSparesTest, ServeAFullDiskUntilFourAreLeftForWhatFreesRoom) {
  const auto journal = Hold();
  for (int i = 0; i < 2; ++i) ASSERT_THAT(journal->Maintain(), IsOk());
  FillDisk();
  EXPECT_TRUE(AppendFact(*journal, "a").ok());
  EXPECT_TRUE(AppendFact(*journal, "b").ok());
  const DiskImage::Files before = disk_.image().Contents();
  const Appended refused = AppendFact(*journal, "c");
  EXPECT_EQ(refused.result, Appender::Result::kFailed);
  EXPECT_THAT(refused.status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("full: /journal/0000/00/new-")));
  const Appended too_long = FreeRoom(*journal, std::string(kSpareBytes, 'x'));
  EXPECT_EQ(too_long.result, Appender::Result::kFailed);
  EXPECT_THAT(too_long.status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("full")));
  EXPECT_EQ(disk_.image().Contents(), before) << "nothing was changed";
  for (const char* fact : {"d", "e", "f", "g"}) EXPECT_TRUE(FreeRoom(*journal, fact).ok());
  EXPECT_THAT(FreeRoom(*journal, "h").status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("full")));
  EXPECT_THAT(journal->Maintain(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("full")));
  files_.Reset();
  EXPECT_TRUE(AppendFact(*journal, "i").ok());
  EXPECT_THAT(Facts(*journal), testing::ElementsAre("a", "b", "d", "e", "f", "g", "i"));
}

TEST_F(JournalSparesTest, AreReadyInTheNextFolderBeforeItIsNeeded) {
  const auto journal = Hold();
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(AppendFact(*journal, fmt::format("{}", i)).ok());
    ASSERT_THAT(journal->Maintain(), IsOk());
  }
  FillDisk();
  for (int i = 0; i < 12; ++i) {
    const Appended appended = FreeRoom(*journal, "late");
    EXPECT_TRUE(appended.ok()) << appended.status;
  }
  EXPECT_THAT(disk_.TypeOf("/journal/0000/01/0000000072"), IsOk());
}

TEST_F(JournalSparesTest, ServeTheNextHolderOnAFullDisk) {
  for (int i = 0; i < 2; ++i) ASSERT_THAT(Hold()->Maintain(), IsOk());
  ASSERT_EQ(Spares().size(), 4u) << "made anew";
  FillDisk();
  const auto journal = Hold();
  EXPECT_THAT(AppendFact(*journal, "refused").status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("full")));
  for (size_t left = 4; left-- > 0;) {
    EXPECT_TRUE(FreeRoom(*journal, "one").ok());
    EXPECT_EQ(Spares().size(), left);
  }
  EXPECT_THAT(FreeRoom(*journal, "two").status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("full")));
}

TEST_F(JournalSparesTest, AreRemovedOnceTheNextHolderHasItsOwn) {
  for (int i = 0; i < 2; ++i) ASSERT_THAT(Hold()->Maintain(), IsOk());
  const std::vector<std::string> before = Spares();
  const auto journal = Hold();
  EXPECT_TRUE(AppendFact(*journal, "one").ok());
  EXPECT_EQ(Spares(), before);
  FillDisk();
  EXPECT_THAT(journal->Maintain(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("full")));
  EXPECT_EQ(Spares(), before) << "they are still needed";
  files_.Reset();
  ASSERT_THAT(journal->Maintain(), IsOk());
  EXPECT_EQ(Spares().size(), 4u);
  for (const std::string& path : before)
    EXPECT_THAT(disk_.TypeOf(path), StatusIs(StatusCode::kNotFound, HasSubstr(path)));
}

// A crash may leave a spare under two names, one of which is an entry's.
TEST_F(JournalSparesTest, AreNotWrittenOverIfTheyHaveASecondName) {
  ASSERT_THAT(Hold()->Maintain(), IsOk());
  for (const std::string& path : Spares()) {
    ASSERT_THAT(disk_.HardLink(path, path + "-second"), IsOk());
  }
  ASSERT_EQ(Spares().size(), 8u);
  const auto journal = Hold();
  EXPECT_TRUE(FreeRoom(*journal, "one").ok());
  for (const std::string& path : Spares()) {
    EXPECT_EQ(*ReadSmallFile(disk_, path, kSpareBytes), std::string(kSpareBytes, '\0'));
  }
  EXPECT_THAT(Facts(*journal), testing::ElementsAre("one"));
}

// Its lock does not reach the next holder, and it goes on when the next one has begun.
TEST_F(JournalSparesTest, AHolderThatWasStoppedWritesOverNoEntryOfTheNext) {
  const auto machine = disk_.NewClient(), next_machine = disk_.NewClient();
  FailingFileSystem stopping(*machine);
  const auto open = [](FileSystem& files) {
    auto journal = Journal::Open(files, "/journal", {}, {.create = true, .holds = true}).value();
    EXPECT_THAT(journal->Look([](const KnownEntry&, bool) {}), IsOk());
    return journal;
  };
  const auto journal = open(stopping);
  for (int i = 0; i < 2; ++i) ASSERT_THAT(journal->Maintain(), IsOk());
  bool was_stopped = false;
  stopping.SetGate([&](const std::string& operation, const std::string& path) {
    if (operation != "WriteAt" || path.find(kSparePrefix) == path.npos || std::exchange(was_stopped, true)) return;
    const auto next = open(*next_machine);
    for (const char* fact : {"a", "b", "c", "d", "e", "f", "g"}) EXPECT_TRUE(FreeRoom(*next, fact).ok());
    EXPECT_THAT(next->Maintain(), IsOk());
    EXPECT_TRUE(FreeRoom(*next, "h").ok());
  });
  EXPECT_TRUE(FreeRoom(*journal, "late").ok());
  EXPECT_TRUE(was_stopped);
  const auto reader = Journal::Open(disk_, "/journal", {}).value();
  EXPECT_THAT(Facts(*reader), testing::ElementsAre("a", "b", "c", "d", "e", "f", "g", "h?", "late?"));
}

TEST_F(JournalSparesTest, OneThatFailsGetsNoNumber) {
  const auto journal = Hold();
  for (int i = 0; i < 4; ++i) ASSERT_THAT(journal->Maintain(), IsOk());
  for (const std::string operation : {"Size", "WriteAt", "SyncData"}) {
    SCOPED_TRACE(operation);
    const size_t spares = Spares().size();
    bool met = false;
    files_.SetRule([&](const FailingFileSystem::Call& call) {
      const bool fails = !met && call.operation == operation && call.path.find(kSparePrefix) != std::string::npos;
      met = met || fails;
      return fails ? absl::InternalError("EIO") : absl::OkStatus();
    });
    const Appended appended = AppendFact(*journal, "lost");
    files_.Reset();
    EXPECT_TRUE(met);
    EXPECT_EQ(appended.result, Appender::Result::kFailed);
    EXPECT_THAT(appended.status, StatusIs(StatusCode::kInternal, "EIO"));
    EXPECT_EQ(Spares().size(), spares - 1);
  }
  EXPECT_TRUE(AppendFact(*journal, "two").ok());
  EXPECT_THAT(Facts(*journal), testing::ElementsAre("two"));
}

}  // namespace
}  // namespace tidemark::storage
