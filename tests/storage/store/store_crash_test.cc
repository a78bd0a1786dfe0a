// What a crash leaves of a store on a journal: everything that was acknowledged, of the change in progress all or
// nothing, and a store that goes on, whatever became of its index.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store.h"
#include "tests/crash/disordered_disk.h"
#include "tests/storage/io/crash_states.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::crash {
namespace {

using storage::DiskImage;
using storage::DiskLog;
using storage::DiskOperation;
using storage::FileSystem;
using storage::IsOk;
using storage::SimulatedDisk;
using storage::Store;

constexpr const char* kStore = "/store";

// In what BrokenIn says where a step or a fact is lost, or not as it was.
constexpr const char* kLoss = "was acknowledged";

// What the store says: "1: committed 100 pinned [tag] {e}".
absl::StatusOr<std::string> TextOf(const Store& store, FileSystem& files) {
  std::string text;
  std::vector<StepInfo> steps;
  absl::Status status = store.catalog().ForEach([&](const storage::StepRecord& record) {
    steps.push_back(record.info);
    return true;
  });
  if (!status.ok()) return status;
  for (const StepInfo& info : steps) {
    text += fmt::format("{}: {}", info.step, StepStateName(info.state));
    if (info.state == StepState::kCommitted) {
      const absl::StatusOr<int64_t> value = storage::ReadValue(store, info.step, files);
      text += value.ok() ? fmt::format(" {}", *value) : " " + value.status().ToString();
    }
    if (info.pinned) text += fmt::format(" pinned {}", info.tags);
    for (const Evaluation& evaluation : info.evaluations) text += " " + evaluation.evaluator;
    text += "; ";
  }
  return text;
}

absl::Status ReportOn(Store& store, int64_t step) {
  const auto record = store.catalog().Find(step);
  storage::EvaluationFact report{.step = step, .attempt = (**record).info.attempt};
  report.evaluation.evaluator = "validation";
  const auto outcomes = store.RecordReports({&report, 1});
  return outcomes.ok() ? (*outcomes)[0].status : outcomes.status();
}

absl::Status DeleteStep(Store& store, int64_t step) {
  const std::string attempt = (**store.catalog().Find(step)).info.attempt;
  const auto noted = store.NoteSteps({{.step = step, .attempt = attempt, .deleted = true, .reason = "a rule's"}});
  return noted.ok() ? store.RemoveDeleted({}).status() : noted.status();
}

using Change = std::function<absl::Status(Store&, FileSystem&)>;

Change Saving(int64_t step, int64_t value) {
  return [=](Store& store, FileSystem& files) { return storage::TrySave(store, step, value, files); };
}

// What a run does, after an opening; each is acknowledged.
std::vector<Change> Changes() {
  return {
      Saving(1, 100),
      Saving(2, 200),
      [](Store& store, FileSystem&) { return store.Tag(1, "paper"); },
      Saving(1, 101),
      [](Store& store, FileSystem&) { return store.RemoveDeleted({}).status(); },
      [](Store& store, FileSystem&) { return ReportOn(store, 2); },
      Saving(3, 300),
      [](Store& store, FileSystem&) { return DeleteStep(store, 2); },
      [](Store& store, FileSystem&) { return store.Unpin(1); },
      [](Store& store, FileSystem& files) {
        const auto identity = storage::TryAttempt(store, 4, 400, files);
        if (identity.ok()) store.AbandonAttempt(*identity, absl::UnixEpoch(), absl::InternalError("EIO")).IgnoreError();
        return identity.status();
      },
      [](Store& store, FileSystem&) { return store.SweepUncommitted(); },
      Saving(4, 401),
  };
}

// Marks are the texts that the store had when a change had been acknowledged.
DiskLog Record(const std::function<std::unique_ptr<FileSystem>(FileSystem&)>& wrap = nullptr) {
  SimulatedDisk disk;
  const std::unique_ptr<FileSystem> wrapped = wrap ? wrap(disk) : nullptr;
  FileSystem& files = wrapped ? *wrapped : disk;
  std::vector<std::string> warnings;
  auto store = storage::OpenStore(kStore, &warnings, files);
  EXPECT_THAT(store, IsOk());
  disk.Mark("");
  for (const Change& change : Changes()) {
    EXPECT_THAT(change(**store, files), IsOk());
    disk.Mark(*TextOf(**store, disk));
  }
  return disk.log();
}

// The texts that a store may have after a crash before operation `prefix`: the last one acknowledged, or the next one.
struct Allowed {
  std::optional<std::string> last;  // nullopt: the store was being made
  std::string next;
};

Allowed AllowedAt(const DiskLog& log, size_t prefix) {
  Allowed allowed;
  for (size_t i = 0; i < log.operations.size(); ++i) {
    if (log.operations[i].kind != DiskOperation::Kind::kMark) continue;
    if (i >= prefix) {
      allowed.next = log.operations[i].name;
      break;
    }
    allowed.last = log.operations[i].name;
  }
  return allowed;
}

// Opens what a crash has left. Empty: no promise is broken.
std::string BrokenIn(const DiskImage& image, const Allowed& allowed, bool index_is_lost) {
  SimulatedDisk disk(image);
  if (index_is_lost) {
    EXPECT_THAT(RemoveTree(disk, std::string(kStore) + "/index"), IsOk());
  }
  std::vector<std::string> warnings;
  auto store = storage::OpenStore(kStore, &warnings, disk);
  if (!store.ok()) return "opening: " + store.status().ToString();
  const absl::StatusOr<std::string> text = TextOf(**store, disk);
  if (!text.ok()) return "reading: " + text.status().ToString();
  if (*text != allowed.last.value_or("") && *text != allowed.next) {
    return fmt::format("found '{}' where '{}' was acknowledged, and '{}' came next", *text,
                       allowed.last.value_or("none"), allowed.next);
  }
  // It goes on, and nothing is left of what was not committed.
  absl::Status status = (*store)->SweepUncommitted();
  if (status.ok()) status = (*store)->RemoveDeleted({}).status();
  if (!status.ok()) return "clearing up: " + status.ToString();
  if (const auto again = TextOf(**store, disk); !again.ok() || *again != *text) {
    return fmt::format("'{}' became '{}' when what was left was removed", *text,
                       again.value_or(again.status().ToString()));
  }
  const auto committed = (*store)->catalog().Committed();
  const auto folders = disk.ListDirectory(std::string(kStore) + "/steps");
  if (!committed.ok() || !folders.ok() || committed->size() != folders->size()) {
    return fmt::format("{} folders in steps/ of the steps '{}'", folders.ok() ? folders->size() : 0, *text);
  }
  if (status = storage::TrySave(**store, 9, 900, disk); !status.ok()) return "the next save: " + status.ToString();
  const auto value = storage::ReadValue(**store, 9, disk);
  return value.ok() && *value == 900 ? "" : "the next save is not restored";
}

struct Outcome {
  size_t states = 0;
  std::string broken;
};

// Opens one in `stride` of the states that crashes could leave, up to the first one that breaks a promise in a way that
// `how` is a part of.
Outcome Enumerate(const DiskLog& log, size_t stride, std::string_view how = "") {
  Outcome outcome;
  std::unordered_set<uint64_t> seen;
  const storage::CrashOptions options{.all_subsets_up_to = 4, .samples = 4, .torn = 1, .seed = storage::SeedOfCases()};
  std::mt19937 random(static_cast<uint32_t>(options.seed));
  storage::ForEachCrash(log, options, seen, [&](const storage::Crash& crash, const DiskImage& image) {
    if (random() % stride != 0) return true;
    ++outcome.states;
    const bool index_is_lost = random() % 4 == 0;
    const std::string broken = BrokenIn(image, AllowedAt(log, crash.prefix), index_is_lost);
    if (!broken.empty()) {
      outcome.broken = fmt::format("seed {}, {}{}: {}", options.seed, crash.ToString(log),
                                   index_is_lost ? ", and the index is lost" : "", broken);
    }
    return broken.empty() || broken.find(how) == std::string::npos;
  });
  return outcome;
}

TEST(StoreCrashTest, NoPromiseIsBroken) {
  const Outcome outcome = Enumerate(Record(), storage::OneOf(16, 128));
  EXPECT_EQ(outcome.broken, "");
  EXPECT_GT(outcome.states, 10u);
  std::printf("%zu states\n", outcome.states);
}

// An operation without which a step or a fact is lost.
struct Needed {
  const char* name;
  DisorderedDisk::Match match;
};

class StoreOrderTest : public testing::TestWithParam<Needed> {};

TEST_P(StoreOrderTest, IsNeeded) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << "it looks at thousands of states, which take minutes there";
  const DiskLog log = Record([](FileSystem& disk) {
    auto disordered = std::make_unique<DisorderedDisk>(disk);
    disordered->Drop(GetParam().match);
    return disordered;
  });
  const Outcome outcome = Enumerate(log, 1, kLoss);
  EXPECT_THAT(outcome.broken, testing::HasSubstr(kLoss)) << outcome.states << " states";
}

DisorderedDisk::Match SyncOf(DisorderedDisk::Operation sync, std::string_view part) {
  return [=](DisorderedDisk::Operation operation, const std::string& path) {
    return operation == sync && path.find(part) != std::string::npos;
  };
}

DisorderedDisk::Match SyncOfSteps() {
  return [](DisorderedDisk::Operation operation, const std::string& path) {
    return operation == DisorderedDisk::Operation::kSyncDirectory && path.ends_with("/steps");
  };
}

INSTANTIATE_TEST_SUITE_P(
    All, StoreOrderTest,
    testing::Values(Needed{"SyncOfAShard", SyncOf(DisorderedDisk::Operation::kSyncData, "/steps/")},
                    Needed{"SyncOfAnAttempt", SyncOf(DisorderedDisk::Operation::kSyncDirectory, "/steps/")},
                    Needed{"SyncOfTheSteps", SyncOfSteps()},
                    Needed{"SyncOfAnEntry", SyncOf(DisorderedDisk::Operation::kSyncData, "/journal/")},
                    Needed{"SyncOfTheJournal", SyncOf(DisorderedDisk::Operation::kSyncDirectory, "/journal/")}),
    [](const auto& info) { return std::string(info.param.name); });

// No sync of the index is needed for anything.
TEST(StoreCrashTest, NoPromiseHangsOnTheIndex) {
  const DiskLog log = Record([](FileSystem& disk) {
    auto disordered = std::make_unique<DisorderedDisk>(disk);
    disordered->Drop(SyncOf(DisorderedDisk::Operation::kSyncData, "/index/"));
    disordered->Drop(SyncOf(DisorderedDisk::Operation::kSyncDirectory, "/index"));
    return disordered;
  });
  const Outcome outcome = Enumerate(log, storage::OneOf(100, 800));
  EXPECT_EQ(outcome.broken, "");
  EXPECT_GT(outcome.states, 10u);
}

}  // namespace
}  // namespace tidemark::crash
