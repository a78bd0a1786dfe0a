// AsyncCheckpointer in a process that may have no more memory than it has: a save and a restore succeed, or say why
// not, or the process ends; what was committed is there for the next one.

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using storage::IsOk;

constexpr int64_t kWeights = 1'500'000;  // those of limited_trainer

TEST(CheckpointerMemory, ThatCannotBeHadCostsNothingThatWasCommitted) {
  if (storage::kAddressSanitizer || storage::kThreadSanitizer) {
    GTEST_SKIP() << "sanitizers need address space of their own";
  }
  const auto directory = storage::TestDirectory::InMemory();
  const std::string store = directory / "store";
  constexpr uint64_t kLimitsMax = 60 << 20;
  constexpr uint64_t kEnough = 4ull << 30;
  std::map<std::string, int> outcomes;
  int64_t latest = 0;
  std::vector<uint64_t> limits;
  for (uint64_t bytes = 0; bytes < kLimitsMax; bytes += 3 << 20) limits.push_back(bytes);
  limits.push_back(kEnough);
  for (const uint64_t bytes : limits) {
    SCOPED_TRACE(fmt::format("{} bytes more", bytes));
    const std::string answer =
        storage::InProgram(LIMITED_TRAINER, {store, std::to_string(latest + 1), std::to_string(bytes)});
    ASSERT_NE(answer, "no limit");
    ++outcomes[answer];
    auto checkpointer = AsyncCheckpointer::Open({.directory = store, .on_warning = [](std::string_view) {}});
    ASSERT_THAT(checkpointer, IsOk());
    TestTrainer trainer(kWeights);
    auto report = (*checkpointer)->RestoreLatest(trainer.state);
    const int64_t found = report.ok() ? report->step : 0;
    if (answer == "ok") {
      EXPECT_EQ(found, latest + 1);
    } else {
      // Where not even a few bytes are to be had no C++ program can say so: it aborts. Signal 11 would be a mistake.
      EXPECT_THAT(answer, testing::AnyOf("RESOURCE_EXHAUSTED", "killed by signal 6"));
      EXPECT_LT(bytes, kEnough) << "there was room";
    }
    EXPECT_TRUE(found == latest || found == latest + 1) << found;
    EXPECT_TRUE(found == 0 || trainer.IsAt(found));
    latest = found;
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
  }
  for (const auto& [outcome, count] : outcomes) std::printf("%s: %d\n", outcome.c_str(), count);
  EXPECT_GT(outcomes["RESOURCE_EXHAUSTED"], 0);
}

}  // namespace
}  // namespace tidemark
