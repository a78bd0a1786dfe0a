#include "bench/process.h"

#include <atomic>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::bench {
namespace {

using ::tidemark::storage::IsOk;

TEST(RunProcess, CollectsBothOutputsAndTheExitCode) {
  const auto output = RunProcess({"sh", "-c", "echo out; echo err >&2; exit 3"});
  ASSERT_THAT(output, IsOk());
  EXPECT_EQ(output->out, "out\n");
  EXPECT_EQ(output->err, "err\n");
  EXPECT_EQ(output->exit_code, 3);
}

TEST(RunProcess, CollectsMoreThanAPipeHolds) {
  const auto output = RunProcess({"sh", "-c", "head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero"});
  ASSERT_THAT(output, IsOk());
  EXPECT_EQ(output->out.size(), 200000u);
  EXPECT_EQ(output->err.size(), 300000u);
}

TEST(RunProcess, SaysWhatCannotBeStarted) {
  const auto output = RunProcess({"no-such-program-anywhere"});
  EXPECT_EQ(output.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(output.status().message(), testing::HasSubstr("no-such-program-anywhere cannot be started"));
}

TEST(RunProcess, ReportsTheSignalThatEndedTheProgram) {
  const auto output = RunProcess({"sh", "-c", "kill -TERM $$"});
  ASSERT_THAT(output, IsOk());
  EXPECT_EQ(output->exit_code, 128 + 15);
}

TEST(KillRunningProcess, EndsTheOneThatIsWaitedFor) {
  std::atomic<bool> gone = false;
  std::thread killer([&] {
    // Whether it has been started yet cannot be seen from here.
    while (!gone) KillRunningProcess();
  });
  const auto output = RunProcess({"sh", "-c", "exec cat /dev/zero >/dev/null"});
  gone = true;
  killer.join();
  ASSERT_THAT(output, IsOk());
  EXPECT_EQ(output->exit_code, 128 + 9);
}

}  // namespace
}  // namespace tidemark::bench
