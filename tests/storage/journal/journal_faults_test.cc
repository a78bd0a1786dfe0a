// Every call of an append, of a look and of an opening fails, once or from then on. An append is acknowledged, or it
// says what failed; the next one works, and nothing that was acknowledged is missing.

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/journal/journal.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/journal/journal_testing.h"

namespace tidemark::storage {
namespace {

class JournalFaultsTest : public testing::Test {
 protected:
  std::unique_ptr<Journal> Open() {
    auto journal = Journal::Open(files_, path_, {}, {.create = true});
    EXPECT_THAT(journal, IsOk());
    return *std::move(journal);
  }

  // Another journal with so many facts, "1" and so on, and a handle that knows them.
  void Prepare(int entries) {
    path_ = fmt::format("/journal-{}", ++journals_);
    journal_ = Open();
    for (int i = 1; i <= entries; ++i) ASSERT_TRUE(AppendFact(*journal_, std::to_string(i)).ok());
    facts_ = Facts(*journal_);
  }

  std::vector<std::string> FactsOfANewHandle() {
    const auto other = Open();
    EXPECT_TRUE(other->Settle().ok());
    std::vector<std::string> facts = Facts(*other);
    std::erase(facts, "(settles)");
    return facts;
  }

  FaultScenario Appending(int entries) {
    return {.name = fmt::format("an append after {}", entries),
            .prepare = [this, entries] { Prepare(entries); },
            .act =
                [this] {
                  appended_ = AppendFact(*journal_, "new");
                  return appended_.status;
                },
            .check = [this](const absl::Status& status, const InjectedFault& fault) { CheckAppend(status, fault); },
            .one_thread = true};
  }

  void CheckAppend(const absl::Status& status, const InjectedFault& fault) {
    if (!status.ok()) {
      EXPECT_TRUE(fault.IsNamedIn(status)) << status;
    }
    EXPECT_EQ(status.ok(), appended_.ok());
    EXPECT_NE(appended_.result, Appender::Result::kRefused);
    // The same handle goes on, and a new one finds the same.
    const Appended next = AppendFact(*journal_, "next");
    EXPECT_TRUE(next.ok()) << next.status;
    for (const std::string& fact : Facts(*journal_)) {
      if (fact != "(settles)") facts_.push_back(fact);
    }
    const std::vector<std::string> found = FactsOfANewHandle();
    EXPECT_EQ(found, facts_);
    const auto news = std::count(found.begin(), found.end(), "new");
    if (appended_.ok()) {
      EXPECT_EQ(news, 1);
    }
    if (appended_.result == Appender::Result::kFailed) {
      EXPECT_EQ(news, 0);
    }
    EXPECT_EQ(std::count(found.begin(), found.end(), "next"), 1);
    journal_.reset();
  }

  SimulatedDisk disk_;
  FailingFileSystem files_{disk_};
  int journals_ = 0;
  std::string path_;
  std::unique_ptr<Journal> journal_;
  std::vector<std::string> facts_;
  Appended appended_;
};

TEST_F(JournalFaultsTest, AnAppendIsAcknowledgedOrRefused) {
  // The first of all, any, and the first of a folder.
  for (const int entries : {0, 3, 64}) {
    const FaultFigures figures = SweepFaults(files_, Appending(entries), FaultsToRun(4));
    EXPECT_TRUE(figures.any_reported());
  }
}

// Without memory, any call of an append may throw.
TEST_F(JournalFaultsTest, AnAppendThatThrowsMayBeThereAndTheNextOneTells) {
  bool thrown = true;
  for (size_t at = 0; thrown; ++at) {
    SCOPED_TRACE(fmt::format("call {}", at));
    Prepare(3);
    size_t calls = 0;
    thrown = false;
    files_.SetGate([&](const std::string&, const std::string&) {
      if (calls++ != at) return;
      thrown = true;
      throw std::bad_alloc();
    });
    appended_ = AppendFact(*journal_, "new");
    files_.SetGate(nullptr);
    EXPECT_EQ(appended_.ok(), !thrown);
    if (thrown) {
      EXPECT_THAT(appended_.status, StatusIs(absl::StatusCode::kResourceExhausted, testing::_));
    }
    EXPECT_TRUE(AppendFact(*journal_, "next").ok());
    for (const std::string& fact : Facts(*journal_)) {
      if (fact != "(settles)") facts_.push_back(fact);
    }
    EXPECT_EQ(FactsOfANewHandle(), facts_);
    const auto news = std::count(facts_.begin(), facts_.end(), "new");
    EXPECT_LE(news, 1);
    EXPECT_EQ(facts_.back(), "next");
    if (appended_.ok()) {
      EXPECT_EQ(news, 1);
    }
    if (appended_.result == Appender::Result::kFailed) {
      EXPECT_EQ(news, 0);
    }
    journal_.reset();
  }
}

TEST_F(JournalFaultsTest, ALookOrAnOpeningSaysWhatFailed) {
  std::unique_ptr<Journal> reader;
  const FaultFigures figures = SweepFaults(files_,
                                           {.name = "a reader",
                                            .prepare = [&] { Prepare(70); },
                                            .act =
                                                [&] {
                                                  auto opened = Journal::Open(files_, path_, {}, {.create = true});
                                                  if (!opened.ok()) return opened.status();
                                                  reader = *std::move(opened);
                                                  return reader->Look([](const KnownEntry&, bool) {});
                                                },
                                            .check =
                                                [&](const absl::Status& status, const InjectedFault& fault) {
                                                  if (!status.ok()) {
                                                    EXPECT_TRUE(fault.Explains(status)) << status;
                                                  }
                                                  // What was visited before the fault is not visited again.
                                                  if (reader != nullptr) {
                                                    EXPECT_THAT(reader->Look([](const KnownEntry&, bool) {}), IsOk());
                                                    EXPECT_EQ(reader->last().number, 70u);
                                                  }
                                                  reader.reset();
                                                  journal_.reset();
                                                },
                                            .one_thread = true},
                                           FaultsToRun(16));
  EXPECT_TRUE(figures.any_reported());
}

}  // namespace
}  // namespace tidemark::storage
