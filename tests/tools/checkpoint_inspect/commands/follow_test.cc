#include <unistd.h>

#include <csignal>

#include "gmock/gmock.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(Follow, PrintsALineOfJsonForEachStepThatIsCommitted) {
  TestStore store;
  store.Save({1});
  RunningInspect follow({"--store", store.directory(), "ls", "--follow"});
  // From then on.
  EXPECT_EQ(follow.ReadErrLine(), "checkpoint-inspect: following " + store.directory() + "; Ctrl-C ends it");
  auto checkpointer = store.OpenCheckpointer(absl::FromUnixSeconds(1'700'000'000));
  TestState state(5000);
  for (const int64_t step : {7, 3}) {
    ASSERT_TRUE(checkpointer->Save(step, state, {.metrics = {{"loss", 0.5}}}).ok());
    ASSERT_TRUE(checkpointer->WaitUntilCommitted().ok());
    const json line = ParseJson(follow.ReadOutLine(), nullptr, /*allow_exceptions=*/false);
    EXPECT_EQ(line["schema_version"], 2);
    EXPECT_EQ(line["step"], step);
    EXPECT_EQ(line["state"], "committed");
    EXPECT_EQ(line["created"], "2023-11-14T22:13:20Z");
    EXPECT_EQ(line["metrics"], ParseJson(R"({"loss": 0.5})"));
  }
  ASSERT_TRUE(checkpointer->Close().ok());
  const Finished finished = follow.Finish(SIGINT);
  EXPECT_EQ(finished.exit_code, 130);
  EXPECT_EQ(finished.out, "");
  EXPECT_EQ(finished.err, "");
}

TEST(Follow, FindsNewStepsByTheirShardsWithinTheSandbox) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << storage::kNoSandbox;
  TestStore store;
  store.Save({1});
  RunningInspect follow({"--store", store.directory(), "--untrusted", "ls", "--follow"});
  EXPECT_THAT(follow.ReadErrLine(), HasSubstr("following"));
  store.Save({2});
  EXPECT_THAT(follow.ReadOutLine(), HasSubstr(R"("step":2,)"));
  EXPECT_EQ(follow.Finish(SIGTERM).exit_code, 130);
}

TEST(Follow, EndsQuietlyAsSoonAsNobodyReads) {
  TestStore store;
  store.Save({1});
  RunningInspect follow({"--store", store.directory(), "ls", "--follow"});
  EXPECT_THAT(follow.ReadErrLine(), HasSubstr("following"));
  follow.CloseOut();
  const Finished finished = follow.Finish();
  EXPECT_EQ(finished.signal, SIGPIPE);
  EXPECT_EQ(finished.err, "");
}

TEST(Follow, FailsAtOnceWhereItsOutputIsClosed) {
  TestStore store;
  store.Save({1});
  for (const std::vector<std::string>& options : {std::vector<std::string>{}, {"--untrusted"}}) {
    if (storage::kAddressSanitizer && !options.empty()) continue;
    std::vector<std::string> arguments = {"--store", store.directory(), "ls", "--follow"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    RunningInspect follow(arguments, {STDOUT_FILENO});
    // One that went on would say that it follows.
    ASSERT_EQ(follow.ReadErrLine(), "checkpoint-inspect: error: write to standard output: Bad file descriptor");
    const Finished finished = follow.Finish();
    EXPECT_EQ(finished.exit_code, 1);
    EXPECT_EQ(finished.err, "");
  }
}

TEST(Follow, NeedsAStore) {
  TestStore store;
  const Finished follow = RunInspect({"--store", store.directory(), "ls", "--follow"});
  EXPECT_EQ(follow.exit_code, 10);
  EXPECT_EQ(follow.out, "");
}

TEST(Follow, FailsWhereTheStoreBecomesOneOfANewerVersion) {
  TestStore store;
  store.Save({1});
  RunningInspect follow({"--store", store.directory(), "ls", "--follow"});
  EXPECT_THAT(follow.ReadErrLine(), HasSubstr("following"));
  store.MakeJournalNewer();
  EXPECT_THAT(follow.ReadErrLine(), HasSubstr("error: "));
  EXPECT_EQ(follow.Finish().exit_code, 14);
}

}  // namespace
}  // namespace tidemark::inspect
