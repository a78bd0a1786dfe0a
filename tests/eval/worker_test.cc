#include "tidemark/worker.h"

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::ElementsAre;

TEST(FollowStore, FindsAStoreWhoseLinkAndFolderComeOneAfterTheOther) {
  const storage::TestDirectory directory;
  const std::string run = directory / "run7";
  std::string warnings;
  std::unique_ptr<storage::Store> store;
  int asked = 0;
  std::vector<int64_t> evaluated;
  const WorkerOptions options{
      .directory = directory / "current/store",
      .evaluator = "validation",
      .until_step = 10,
      .poll_interval = absl::Milliseconds(1),
      .stop_on_signal = false,
      // Between two looks: it meets nothing, a link to nothing, a folder without a store, and the store.
      .stop =
          [&] {
            ++asked;
            if (asked == 3) std::filesystem::create_symlink("run7", directory / "current");
            if (asked == 5) std::filesystem::create_directory(run);
            if (asked == 7) {
              store = storage::OpenSoundStore(run + "/store", &warnings);
              storage::CommitStep(*store, 10, 110);
            }
            return asked > 1000;
          },
  };
  const auto report = FollowStore(options, [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    evaluated.push_back(snapshot.step());
    return Metrics{{"value", 1}};
  });
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->end, WorkerReport::End::kUntilStep);
  EXPECT_THAT(evaluated, ElementsAre(10));
  EXPECT_EQ(warnings, "");
}

TEST(FollowStore, EndsAfterTheCurrentStepWhenASignalComes) {
  const storage::TestDirectory directory;
  std::string warnings;
  const auto store = storage::OpenSoundStore(directory / "store", &warnings);
  ASSERT_NE(store, nullptr);
  for (const int64_t step : {1, 2, 3, 4}) storage::CommitStep(*store, step, step);
  std::vector<int64_t> evaluated;
  std::vector<int64_t> reported;
  for (const int signal : {SIGINT, SIGTERM}) {
    const WorkerOptions options{
        .directory = directory / "store",
        .evaluator = "validation",
        .observer = ObserverOf({.evaluated = [&](int64_t step, const Evaluation&) { reported.push_back(step); }})};
    const auto report = FollowStore(options, [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
      evaluated.push_back(snapshot.step());
      if (snapshot.step() % 2 == 0) raise(signal);
      return Metrics{{"value", 1}};
    });
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->end, WorkerReport::End::kSignal);
    EXPECT_EQ(report->evaluated, 2);
  }
  EXPECT_THAT(evaluated, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(reported, ElementsAre(1, 2, 3, 4));
}

volatile sig_atomic_t former_calls = 0;
void CountFormerCall(int) { former_calls = former_calls + 1; }

TEST(FollowStore, GivesASecondSignalItsPreviousEffect) {
  const storage::TestDirectory directory;
  std::string warnings;
  const auto store = storage::OpenSoundStore(directory / "store", &warnings);
  ASSERT_NE(store, nullptr);
  storage::CommitStep(*store, 1, 1);
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto before = std::signal(signal, CountFormerCall);
    former_calls = 0;
    const auto report = FollowStore({.directory = directory / "store", .evaluator = std::to_string(signal)},
                                    [&](const Snapshot&) -> absl::StatusOr<Verdict> {
                                      raise(signal);
                                      EXPECT_EQ(former_calls, 0) << "the first only ends the call";
                                      raise(signal);
                                      EXPECT_EQ(former_calls, 1);
                                      return Metrics{};
                                    });
    raise(signal);
    EXPECT_EQ(former_calls, 2) << "after the call it is as it was";
    std::signal(signal, before);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->end, WorkerReport::End::kSignal);
    EXPECT_EQ(report->evaluated, 1);
  }
}

}  // namespace
}  // namespace tidemark
