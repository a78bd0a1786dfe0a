// What a crash leaves of a journal: every entry that was acknowledged, in its place; of any other all or nothing; and a
// journal that can be appended to.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/journal/journal.h"
#include "storage/journal/journal_packing.h"
#include "tests/crash/disordered_disk.h"
#include "tests/crash/failing_disk.h"
#include "tests/storage/io/crash_states.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::crash {
namespace {

using storage::AppendDraft;
using storage::Appended;
using storage::Appender;
using storage::DiskImage;
using storage::DiskLog;
using storage::DiskOperation;
using storage::FileSystem;
using storage::IsOk;
using storage::Journal;
using storage::JournalView;
using storage::KnownEntry;
using storage::SimulatedDisk;

constexpr const char* kJournal = "/store/journal";

std::unique_ptr<Journal> OpenJournal(FileSystem& files) {
  auto journal = Journal::Open(files, kJournal, {}, {.create = true});
  EXPECT_THAT(journal, IsOk());
  return *std::move(journal);
}

Appended AppendTo(Journal& journal, const std::string& fact) {
  return journal.Append({.facts = {fact}}, [](const JournalView&) { return absl::OkStatus(); });
}

// The facts of all entries that count.
absl::StatusOr<std::vector<std::string>> FactsOf(Journal& journal) {
  std::vector<std::string> facts;
  absl::Status status = journal.Look([&](const KnownEntry& known, bool) {
    if (known.counts) facts.insert(facts.end(), known.entry.facts.begin(), known.entry.facts.end());
  });
  if (!status.ok()) return status;
  return facts;
}

// Appends, and marks in the log what was begun and what was acknowledged.
void Do(SimulatedDisk& disk, Journal& journal, const std::string& fact) {
  disk.Mark("begun " + fact);
  if (AppendTo(journal, fact).ok()) disk.Mark("acknowledged " + fact);
}

// A disk with a journal of so many facts, all durable.
DiskImage JournalOf(int entries) {
  SimulatedDisk disk;
  EXPECT_THAT(disk.CreateDirectory("/store"), IsOk());
  if (entries > 0) {
    const auto journal = OpenJournal(disk);
    for (int i = 1; i <= entries; ++i) EXPECT_TRUE(AppendTo(*journal, fmt::format("old {}", i)).ok());
  }
  return disk.image();
}

class JournalPromises {
 public:
  JournalPromises(int old_entries, const DiskLog& log, size_t prefix) {
    for (int i = 1; i <= old_entries; ++i) Begin(fmt::format("old {}", i), true);
    for (size_t i = 0; i < prefix; ++i) {
      if (log.operations[i].kind != DiskOperation::Kind::kMark) continue;
      const std::string& mark = log.operations[i].name;
      if (mark.starts_with("begun ")) Begin(mark.substr(6), false);
      if (mark.starts_with("acknowledged ")) acknowledged_.push_back(mark.substr(13));
    }
  }

  // What is broken by a journal with these facts; empty: nothing.
  std::string Broken(const std::vector<std::string>& facts) const {
    auto at = begun_.begin();
    for (const std::string& fact : facts) {
      at = std::find(at, begun_.end(), fact);
      if (at == begun_.end()) return fmt::format("fact {} is not in its place in {}", fact, facts);
      ++at;
    }
    for (const std::string& fact : acknowledged_) {
      if (std::find(facts.begin(), facts.end(), fact) == facts.end()) {
        return fmt::format("the acknowledged fact {} is missing in {}", fact, facts);
      }
    }
    return "";
  }

 private:
  void Begin(std::string fact, bool acknowledged) {
    if (acknowledged) acknowledged_.push_back(fact);
    begun_.push_back(std::move(fact));
  }

  std::vector<std::string> begun_;  // in this order
  std::vector<std::string> acknowledged_;
};

// Reads the journal that a crash has left, appends to it, and has the power fail once more.
std::string BrokenIn(const DiskImage& image, const JournalPromises& promises) {
  SimulatedDisk disk(image);
  auto journal = Journal::Open(disk, kJournal, {}, {.create = true});
  if (!journal.ok()) return journal.status().ToString();
  const auto facts = FactsOf(**journal);
  if (!facts.ok()) return facts.status().ToString();
  if (std::string broken = promises.Broken(*facts); !broken.empty()) return broken;
  const Appended next = AppendTo(**journal, "next");
  if (!next.ok()) return "the next append: " + next.status.ToString();
  const DiskLog log = disk.log();
  std::vector<storage::LostOperation> lost;
  for (const size_t i : log.Unsynced(log.operations.size())) lost.push_back({.index = i});
  SimulatedDisk after(log.StateAfter(log.operations.size(), lost));
  auto expected = *facts;
  expected.push_back("next");
  const auto found = FactsOf(*OpenJournal(after));
  if (!found.ok()) return "after the next append: " + found.status().ToString();
  if (*found != expected) return fmt::format("after the next append: {} where {} was seen", *found, expected);
  return "";
}

struct JournalScenario {
  const char* name;
  int old_entries;
  std::function<void(SimulatedDisk&, FileSystem&)> act;
};

struct JournalOutcome {
  size_t states = 0;
  std::string broken;
};

using WrapDisk = std::function<std::unique_ptr<FileSystem>(FileSystem&)>;

// Every crash of the scenario, up to the first one that breaks a promise.
JournalOutcome EnumerateJournal(const JournalScenario& scenario, const WrapDisk& wrap = nullptr) {
  SimulatedDisk disk(JournalOf(scenario.old_entries));
  const std::unique_ptr<FileSystem> wrapped = wrap ? wrap(disk) : nullptr;
  scenario.act(disk, wrapped ? *wrapped : disk);
  const DiskLog log = disk.log();
  JournalOutcome outcome;
  std::unordered_set<uint64_t> seen;
  const storage::CrashOptions options{.all_subsets_up_to = 8, .seed = storage::SeedOfCases()};
  outcome.states = storage::ForEachCrash(log, options, seen, [&](const storage::Crash& crash, const DiskImage& image) {
    const JournalPromises promises(scenario.old_entries, log, crash.prefix);
    const std::string broken = BrokenIn(image, promises);
    if (!broken.empty()) outcome.broken = fmt::format("seed {}, {}: {}", options.seed, crash.ToString(log), broken);
    return broken.empty();
  });
  return outcome;
}

void OneHandle(SimulatedDisk& disk, FileSystem& files) {
  const auto journal = OpenJournal(files);
  for (const char* fact : {"a", "b", "c"}) Do(disk, *journal, fact);
}

void TwoHandles(SimulatedDisk& disk, FileSystem& files) {
  const auto one = OpenJournal(files);
  const auto other = OpenJournal(files);
  Do(disk, *one, "a");
  Do(disk, *other, "b");
  Do(disk, *one, "c");
  Do(disk, *one, "d");
  Do(disk, *other, "e");
}

// A sync of the folder fails, and what it should have covered may be lost for good.
void FailedSync(SimulatedDisk& disk, FileSystem& files, const char* operation, const char* suffix) {
  const auto other = OpenJournal(files);
  FailingDisk failing(disk);
  const auto journal = OpenJournal(failing.files());
  Do(disk, *journal, "a");
  failing.FailOnce(operation, suffix, absl::InternalError("EIO"));
  Do(disk, *journal, "b");
  Do(disk, *other, "c");
  Do(disk, *journal, "d");
}

// Another handle's syncs fail between the naming and the sync of an entry. It does not live to settle anything.
void AnothersFailedSync(SimulatedDisk& disk, FileSystem&) {
  storage::FailingFileSystem others_files(disk);
  const auto other = OpenJournal(others_files);
  Do(disk, *other, "first");
  others_files.SetRule([&](const storage::FailingFileSystem::Call& call) {
    if (call.operation != "SyncDirectory") return absl::OkStatus();
    disk.FailSync(call.path);
    return absl::InternalError("EIO");
  });
  storage::FailingFileSystem files(disk);
  const auto journal = OpenJournal(files);
  bool is_named = false;
  files.SetGate([&](const std::string& operation, const std::string&) {
    if (operation == "RenameToNew") is_named = true;
    if (!is_named || operation != "ListDirectory") return;
    is_named = false;
    files.SetGate(nullptr);
    disk.Mark("begun b");
    EXPECT_FALSE(AppendTo(*other, "b").ok());
  });
  Do(disk, *journal, "a");
  Do(disk, *journal, "c");
}

// The same of a folder's own name.
void FailedFolder(SimulatedDisk& disk, FileSystem&, const char* suffix) {
  FailingDisk failing(disk);
  failing.FailOnce("SyncDirectory", suffix, absl::InternalError("EIO"));
  auto journal = Journal::Open(failing.files(), kJournal, {}, {.create = true});
  if (!journal.ok()) journal = OpenJournal(failing.files());
  for (const char* fact : {"a", "b", "c"}) Do(disk, **journal, fact);
}

// The holder's appends, which are written over spare files, over the end of a folder.
void Holder(SimulatedDisk& disk, FileSystem& files) {
  auto journal = Journal::Open(files, kJournal, {}, {.create = true, .holds = true});
  EXPECT_THAT(journal, IsOk());
  for (const char* fact : {"a", "b", "c"}) {
    EXPECT_THAT((*journal)->Maintain(), IsOk());
    Do(disk, **journal, fact);
  }
}

void PackAlone(SimulatedDisk&, FileSystem& files) {
  EXPECT_THAT(storage::PackEntries(storage::JournalFiles(files, kJournal), 1, 5), IsOk());
}

void Pack(SimulatedDisk& disk, FileSystem& files) {
  PackAlone(disk, files);
  const auto journal = OpenJournal(files);
  Do(disk, *journal, "a");
}

std::vector<JournalScenario> JournalScenarios() {
  return {
      {"NewJournal", 0, OneHandle},
      {"OneHandle", 3, OneHandle},
      {"EndOfAFolder", 63, OneHandle},
      {"Holder", 3, Holder},
      {"HolderAtTheEndOfAFolder", 63, Holder},
      {"Pack", 7, Pack},
      {"TwoHandles", 3, TwoHandles},
      {"TwoHandlesAtTheEndOfAFolder", 62, TwoHandles},
      {"FailedSync", 3, [](auto& disk, auto& files) { FailedSync(disk, files, "SyncDirectory", "/00"); }},
      {"FailedSyncAtTheEndOfAFolder", 62,
       [](auto& disk, auto& files) { FailedSync(disk, files, "SyncDirectory", "/00"); }},
      {"AnothersFailedSync", 3, AnothersFailedSync},
      {"FailedDataSync", 3, [](auto& disk, auto& files) { FailedSync(disk, files, "SyncData", ""); }},
      {"FailedSyncOfTheStore", 0, [](auto& disk, auto& files) { FailedFolder(disk, files, "/store"); }},
      {"FailedSyncOfTheJournal", 0, [](auto& disk, auto& files) { FailedFolder(disk, files, "/journal"); }},
      {"FailedSyncOfAnUpperFolder", 64, [](auto& disk, auto& files) { FailedFolder(disk, files, "/0000"); }},
  };
}

class JournalCrashTest : public testing::TestWithParam<JournalScenario> {};

TEST_P(JournalCrashTest, NoPromiseIsBroken) {
  const JournalOutcome outcome = EnumerateJournal(GetParam());
  EXPECT_EQ(outcome.broken, "");
  EXPECT_GT(outcome.states, 10u);
  std::printf("%s: %zu states\n", GetParam().name, outcome.states);
}

INSTANTIATE_TEST_SUITE_P(All, JournalCrashTest, testing::ValuesIn(JournalScenarios()),
                         [](const auto& info) { return std::string(info.param.name); });

// Which syncs there are, and a scenario in which each is needed.
struct NeededSync {
  const char* name;
  JournalScenario scenario;
  DisorderedDisk::Match match;
};

class JournalSyncTest : public testing::TestWithParam<NeededSync> {};

TEST_P(JournalSyncTest, WithoutItAPromiseIsBroken) {
  const JournalOutcome outcome = EnumerateJournal(GetParam().scenario, [](FileSystem& disk) {
    auto disordered = std::make_unique<DisorderedDisk>(disk);
    disordered->Drop(GetParam().match);
    return disordered;
  });
  EXPECT_NE(outcome.broken, "") << outcome.states << " states";
}

DisorderedDisk::Match SyncOf(std::string_view suffix) {
  return [suffix](DisorderedDisk::Operation operation, const std::string& path) {
    return operation == DisorderedDisk::Operation::kSyncDirectory && path.ends_with(suffix);
  };
}

INSTANTIATE_TEST_SUITE_P(All, JournalSyncTest,
                         testing::Values(NeededSync{"OfAnEntry",
                                                    {"", 3, OneHandle},
                                                    [](DisorderedDisk::Operation operation, const std::string&) {
                                                      return operation == DisorderedDisk::Operation::kSyncData;
                                                    }},
                                         NeededSync{"OfASegment",
                                                    {"", 7, PackAlone},
                                                    [](DisorderedDisk::Operation operation, const std::string&) {
                                                      return operation == DisorderedDisk::Operation::kSyncData;
                                                    }},
                                         NeededSync{"OfASpare",
                                                    {"", 3, Holder},
                                                    [](DisorderedDisk::Operation operation, const std::string& path) {
                                                      return operation == DisorderedDisk::Operation::kSyncData &&
                                                             path.find("/spare-") != std::string::npos;
                                                    }},
                                         NeededSync{"OfAFolder", {"", 3, OneHandle}, SyncOf("/0000/00")},
                                         NeededSync{"OfAnUpperFolder", {"", 64, OneHandle}, SyncOf("/journal/0000")},
                                         NeededSync{"OfTheJournal", {"", 0, OneHandle}, SyncOf("/journal")},
                                         NeededSync{"OfTheStore", {"", 0, OneHandle}, SyncOf("/store")}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tidemark::crash
