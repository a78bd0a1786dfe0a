// AsyncCheckpointer in a process that may have no more memory than it has: a save and a restore succeed, or say why
// not, or RocksDB ends the process; what was committed is there for the next one.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;

constexpr int64_t kWeights = 1'500'000;  // those of limited_trainer

// RocksDB's own threads allocate too, and end the process where there is no memory: docs/reliability.md.
constexpr std::string_view kEndedInRocksDb = "ended in RocksDB";
constexpr int kEndedMax = 1;  // of the runs of one test: of many thousands it was one

// A sweep over what is too little, a few of all that a save and a restore could need, and the one that is enough.
std::vector<uint64_t> Limits(uint32_t seed, uint64_t enough) {
  constexpr uint64_t kSweepMax = 60 << 20;
  constexpr uint64_t kDrawnMax = 600 << 20;
  std::vector<uint64_t> limits;
  for (uint64_t bytes = 0; bytes < kSweepMax; bytes += 3 << 20) limits.push_back(bytes);
  std::mt19937 random(seed);
  const int drawn = storage::AllCasesAsked() ? 500 : 8;
  // Any byte counts, and not only whole pages.
  for (int i = 0; i < drawn; ++i) limits.push_back(std::uniform_int_distribution<uint64_t>(0, kDrawnMax)(random));
  limits.push_back(enough);
  return limits;
}

TEST(CheckpointerMemory, ThatCannotBeHadCostsNothingThatWasCommitted) {
  if (storage::kAddressSanitizer || storage::kThreadSanitizer) {
    GTEST_SKIP() << "sanitizers need address space of their own";
  }
  const auto directory = storage::TestDirectory::InMemory();
  const std::string store = directory / "store";
  constexpr uint64_t kEnough = 4ull << 30;
  std::map<std::string, int> outcomes;
  int64_t latest = 0;
  const uint32_t seed = storage::SeedOfCases();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const std::vector<uint64_t> limits = Limits(seed, kEnough);
  for (const uint64_t bytes : limits) {
    SCOPED_TRACE(fmt::format("{} bytes more", bytes));
    const std::string answer =
        storage::InProgram(LIMITED_TRAINER, {store, std::to_string(latest + 1), std::to_string(bytes)});
    ASSERT_NE(answer, "no limit");
    ++outcomes[answer];
    auto checkpointer = AsyncCheckpointer::Open({.directory = store, .observer = NoWarnings()});
    ASSERT_THAT(checkpointer, IsOk());
    TestTrainer trainer(kWeights);
    auto report = (*checkpointer)->RestoreLatest(trainer.state);
    const int64_t found = report.ok() ? report->step : 0;
    if (answer == "ok") {
      EXPECT_EQ(found, latest + 1);
    } else {
      EXPECT_THAT(answer, testing::AnyOf("RESOURCE_EXHAUSTED", kEndedInRocksDb));
      EXPECT_LT(bytes, kEnough) << "there was room";
    }
    EXPECT_TRUE(found == latest || found == latest + 1) << found;
    EXPECT_TRUE(found == 0 || trainer.IsAt(found));
    latest = found;
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
  }
  for (const auto& [outcome, count] : outcomes) std::printf("%s: %d\n", outcome.c_str(), count);
  EXPECT_GT(outcomes["RESOURCE_EXHAUSTED"], 0);
  EXPECT_LE(outcomes[std::string(kEndedInRocksDb)], kEndedMax);
}

// No shard is written, so the staging side needs most of the memory.
TEST(CheckpointerMemory, ThatCannotBeHadForStagingIsAnErrorOfTheSave) {
  if (storage::kAddressSanitizer || storage::kThreadSanitizer) {
    GTEST_SKIP() << "sanitizers need address space of their own";
  }
  const auto directory = storage::TestDirectory::InMemory();
  std::map<std::string, int> outcomes;
  for (uint64_t bytes = 1 << 20; bytes < 40 << 20; bytes += 1 << 20) {
    ++outcomes[storage::InProgram(LIMITED_TRAINER,
                                  {directory / "store", "1", std::to_string(bytes), "only evaluated"})];
  }
  for (const auto& [outcome, count] : outcomes) {
    EXPECT_THAT(outcome, testing::AnyOf("ok", "RESOURCE_EXHAUSTED", kEndedInRocksDb)) << count;
  }
  EXPECT_GT(outcomes["RESOURCE_EXHAUSTED"], 0);
  EXPECT_GT(outcomes["ok"], 0);
  EXPECT_LE(outcomes[std::string(kEndedInRocksDb)], kEndedMax);
}

// A tensor of more than any machine has, and the buffer of one that is smaller: it is never read.
TEST(CheckpointerMemory, RefusesAStateLargerThanTheMachineAtOnce) {
  const storage::TestDirectory directory;
  auto checkpointer = AsyncCheckpointer::Open({.directory = directory / "store"});
  ASSERT_THAT(checkpointer, IsOk());
  std::byte small[16] = {};
  State state;
  state.AddTensor("huge", Dtype::kUint8, {int64_t{1} << 40}, small);
  EXPECT_THAT((*checkpointer)->Prepare(state), IsOk()) << "a wish";
  EXPECT_THAT((*checkpointer)->Save(1, state),
              storage::StatusIs(absl::StatusCode::kResourceExhausted,
                                testing::AllOf(testing::HasSubstr("needs 1099511627776 more bytes"),
                                               testing::HasSubstr(" are available ("))));
  State null;
  null.AddTensor("huge", Dtype::kUint8, {int64_t{1} << 40}, nullptr);
  EXPECT_THAT((*checkpointer)->Save(1, null),
              storage::StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("its data is null")));
  TestTrainer trainer;
  ASSERT_THAT((*checkpointer)->Save(1, trainer.state), IsOk());
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
}

TEST(CheckpointerMemory, ForOneSnapshotIsEnough) {
  const storage::TestDirectory directory;
  TestTrainer trainer(kWeights);
  std::atomic<int> asked = 0;
  const Machine machine(storage::PosixFileSystem(), [&]() -> AvailableMemory {
    return {.bytes = asked++ == 0 ? 20u << 20 : 1u << 20, .limit = "what the test says"};
  });
  absl::Mutex mutex;
  std::vector<std::string> warnings;
  auto checkpointer = CheckpointerOnFileSystem::Open(
      machine, {.directory = directory / "store", .observer = ObserverOf({.warning = [&](std::string_view line) {
                                                    absl::MutexLock lock(&mutex);
                                                    if (line.find("memory:") != line.npos) {
                                                      warnings.emplace_back(line);
                                                    }
                                                  }})});
  ASSERT_THAT(checkpointer, IsOk());
  std::vector<SaveHandle> saves;
  for (int64_t step = 1; step <= 8; ++step) {
    auto save = (*checkpointer)->Save(step, trainer.state);
    ASSERT_THAT(save, IsOk());
    saves.push_back(*save);
  }
  for (const SaveHandle& save : saves) EXPECT_THAT(save.committed().Wait(), IsOk());
  EXPECT_THAT((*checkpointer)->Close(), IsOk());
  EXPECT_THAT(warnings, testing::SizeIs(testing::Le(1)));
}

}  // namespace
}  // namespace tidemark
