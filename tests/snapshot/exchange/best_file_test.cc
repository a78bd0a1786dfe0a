#include "tidemark/best_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "tests/snapshot/exchange/exported_file.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/capture.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class BestFileTest : public testing::Test {
 protected:
  void Open(RetentionOptions retention = {}) {
    auto opened = AsyncCheckpointer::Open({.directory = directory_ / "store", .retention = std::move(retention)});
    ASSERT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
  }

  void Save(int64_t step, Metrics metrics) {
    trainer_.SetTo(step);
    const auto save = checkpointer_->Save(step, trainer_.state, {.metrics = std::move(metrics)});
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
  }

  // Looks for itself only once; the tests ask it to look.
  BestFileOptions Options() {
    return {.store = directory_ / "store",
            .metric = "loss",
            .path = path_,
            .contents = {.entries = {"model.*"}},
            .poll_interval = absl::Hours(1),
            .observer = ObserverOf({.warning = [this](std::string_view line) { AddWarning(line); }})};
  }

  std::unique_ptr<BestFile> Start(BestFileOptions options) {
    auto started = BestFile::Start(std::move(options));
    EXPECT_THAT(started, IsOk());
    return started.ok() ? *std::move(started) : nullptr;
  }

  // Of the file, after looking.
  std::string StepAfterUpdate(BestFile& best) {
    EXPECT_THAT(best.Update(), IsOk());
    return ExportedTensors(path_).step();
  }

  void AddWarning(std::string_view line) {
    absl::MutexLock lock(&mutex_);
    warnings_.emplace_back(line);
  }

  // All of them only once the BestFile is gone: its thread may be about to tell one.
  std::vector<std::string> Warnings() {
    absl::MutexLock lock(&mutex_);
    return warnings_;
  }

  TestTrainer trainer_{1000};
  const storage::TestDirectory directory_;
  const std::string path_ = directory_ / "best.safetensors";
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
  absl::Mutex mutex_;
  std::vector<std::string> warnings_;
};

TEST_F(BestFileTest, HasTheBestStepWheneverThatChanges) {
  Open();
  auto best = Start(Options());
  ASSERT_NE(best, nullptr);
  EXPECT_THAT(best->Update(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(path_));
  Save(1, {{"loss", 3}});
  EXPECT_EQ(StepAfterUpdate(*best), "1");
  Save(2, {{"loss", 5}});
  Save(3, {});
  EXPECT_EQ(StepAfterUpdate(*best), "1");
  Save(4, {{"loss", 2}});
  EXPECT_EQ(StepAfterUpdate(*best), "4");
  const std::string weight = ExportedTensors(path_).Bytes("model.weight");
  EXPECT_EQ(std::memcmp(weight.data(), trainer_.weight.data(), weight.size()), 0);
  best.reset();
  EXPECT_THAT(Warnings(), ElementsAre());
}

TEST_F(BestFileTest, FollowsMetricsThatCameLaterAndVerdicts) {
  Open();
  BestFileOptions options = Options();
  options.metric = "validation/accuracy";
  const auto best = Start(options);
  ASSERT_NE(best, nullptr);
  Save(1, {});
  Save(2, {});
  ASSERT_THAT(checkpointer_->ReportMetrics(2, "validation", {{"accuracy", 0.5}}).Wait(), IsOk());
  EXPECT_EQ(StepAfterUpdate(*best), "2");
  ASSERT_THAT(checkpointer_->ReportMetrics(1, "validation", {{"accuracy", 0.75}}).Wait(), IsOk());
  EXPECT_EQ(StepAfterUpdate(*best), "1");
  ASSERT_THAT(checkpointer_->AddEvaluator(
                  {.name = "doubts", .when_lagging = WhenLagging::kBlock},
                  [](const Snapshot&) -> absl::StatusOr<Verdict> { return Verdict({}, "not to be trusted"); }),
              IsOk());
  Save(3, {});
  ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
  ASSERT_THAT(checkpointer_->ReportMetrics(3, "validation", {{"accuracy", 1}}).Wait(), IsOk());
  EXPECT_EQ(StepAfterUpdate(*best), "1");
}

TEST_F(BestFileTest, KeepsTheBestStepThatWasDeleted) {
  Open({.max_to_keep = 1});
  const auto best = Start(Options());
  ASSERT_NE(best, nullptr);
  Save(1, {{"loss", 1}});
  EXPECT_EQ(StepAfterUpdate(*best), "1");
  Save(2, {{"loss", 2}});
  Save(3, {{"loss", 3}});
  ASSERT_THAT(checkpointer_->Tidy(), IsOk());
  const auto steps = checkpointer_->Steps();
  ASSERT_THAT(steps, IsOk());
  ASSERT_EQ(steps->at(0).state, StepState::kDeleted);
  EXPECT_EQ(StepAfterUpdate(*best), "1");
  Save(4, {{"loss", 0.5}});
  EXPECT_EQ(StepAfterUpdate(*best), "4");
}

TEST_F(BestFileTest, WarnsOnceWithARemedyAndTriesAgain) {
  Open();
  BestFileOptions options = Options();
  options.path = directory_ / "models/best.safetensors";
  auto best = Start(options);
  ASSERT_NE(best, nullptr);
  Save(1, {{"loss", 3}});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(best->Update(), StatusIs(StatusCode::kNotFound, HasSubstr("models/best.safetensors")));
  }
  std::filesystem::create_directory(directory_ / "models");
  EXPECT_THAT(best->Update(), IsOk());
  EXPECT_EQ(ExportedTensors(options.path).step(), "1");
  best.reset();
  EXPECT_THAT(Warnings(),
              ElementsAre(AllOf(HasSubstr("models/best.safetensors is not up to date: step 1, the best by 'loss', was "
                                          "not exported: "),
                                HasSubstr("; make sure that its folder exists. It is tried again"))));
  EXPECT_THAT(checkpointer_->Close(), IsOk()) << "no save was harmed";
}

TEST_F(BestFileTest, TriesAgainByItself) {
  Open();
  Save(1, {{"loss", 3}});
  absl::Notification warned;
  absl::Notification exported;
  BestFileOptions options = Options();
  options.path = directory_ / "models/best.safetensors";
  options.poll_interval = absl::Milliseconds(1);
  options.observer = ObserverOf({.exported = [&](int64_t, std::string_view) { exported.Notify(); },
                                 .warning = [&](std::string_view) { warned.Notify(); }});
  const auto best = Start(options);
  ASSERT_NE(best, nullptr);
  warned.WaitForNotification();
  std::filesystem::create_directory(directory_ / "models");
  exported.WaitForNotification();
  EXPECT_EQ(ExportedTensors(options.path).step(), "1");
}

TEST_F(BestFileTest, ReplacesNoFileOfAnotherUnlessToldTo) {
  Open();
  Save(1, {{"loss", 3}});
  std::ofstream(path_) << "notes of a person";
  const auto is_refused = StatusIs(
      StatusCode::kAlreadyExists, HasSubstr("best.safetensors exists and is not an export of this store; move it away, "
                                            "or set contents.replace"));
  EXPECT_THAT(BestFile::Start(Options()), is_refused);
  ASSERT_THAT(ExportSafetensors(**StoreReader::Open(directory_ / "store"), 1, path_, {.replace = true}), IsOk());
  const auto best = Start(Options());
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(StepAfterUpdate(*best), "1");
  // Another file, since then.
  ASSERT_THAT(ExportSafetensors(*Capture(trainer_.state).value(), path_, {.replace = true}), IsOk());
  Save(2, {{"loss", 2}});
  EXPECT_THAT(best->Update(),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("is not an export of this store; move it")));
  EXPECT_EQ(ExportedTensors(path_).step(), "0");
  EXPECT_THAT(BestFile::Start(Options()), is_refused);
  BestFileOptions options = Options();
  options.contents.replace = true;
  const auto told = Start(options);
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(StepAfterUpdate(*told), "2");
}

TEST_F(BestFileTest, DoesNothingInAForkedChild) {
  Open();
  auto best = Start(Options());
  ASSERT_NE(best, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends it if it hangs
    const bool refused = absl::IsFailedPrecondition(best->Update());
    best.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Save(1, {{"loss", 3}});
  EXPECT_EQ(StepAfterUpdate(*best), "1");
}

TEST_F(BestFileTest, LooksByItself) {
  Open();
  BestFileOptions options = Options();
  options.poll_interval = absl::Milliseconds(1);
  absl::Notification second;
  options.observer = ObserverOf({.exported = [&](int64_t step, std::string_view) {
    if (step == 2) second.Notify();
  }});
  const auto best = Start(options);
  ASSERT_NE(best, nullptr);
  Save(1, {{"loss", 3}});
  Save(2, {{"loss", 2}});
  second.WaitForNotification();
  EXPECT_EQ(ExportedTensors(path_).step(), "2");
}

TEST_F(BestFileTest, StartsWithTheBestStepOfAnEarlierProcess) {
  Open();
  Save(1, {{"loss", 1}});
  Save(2, {{"loss", 2}});
  ASSERT_THAT(checkpointer_->Close(), IsOk());
  const auto best = Start(Options());
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(StepAfterUpdate(*best), "1");
}

TEST_F(BestFileTest, OutlivesAnObserverThatThrows) {
  Open();
  BestFileOptions options = Options();
  options.observer = ObserverOf({.exported = [](int64_t, std::string_view) { throw std::runtime_error("unwell"); },
                                 .warning =
                                     [this](std::string_view line) {
                                       AddWarning(line);
                                       throw std::runtime_error("unwell too");
                                     }});
  auto best = Start(options);
  ASSERT_NE(best, nullptr);
  Save(1, {{"loss", 1}});
  EXPECT_EQ(StepAfterUpdate(*best), "1");
  best.reset();
  EXPECT_THAT(Warnings(), ElementsAre(HasSubstr("CheckpointObserver::Exported threw: unwell")));
}

TEST_F(BestFileTest, RefusesOptionsOutOfTheirRange) {
  EXPECT_THAT(BestFile::Start(Options()), StatusIs(StatusCode::kNotFound, HasSubstr("store")));
  Open();
  BestFileOptions options = Options();
  options.metric = "width";
  EXPECT_THAT(BestFile::Start(options), StatusIs(StatusCode::kInvalidArgument, HasSubstr("mode: neither the store")));
  options.mode = BestMode::kHighest;
  EXPECT_THAT(BestFile::Start(options), IsOk());
  options = Options();
  options.path = "";
  EXPECT_THAT(BestFile::Start(options), StatusIs(StatusCode::kInvalidArgument, HasSubstr("path: expected a file")));
  options = Options();
  options.poll_interval = absl::ZeroDuration();
  EXPECT_THAT(BestFile::Start(options), StatusIs(StatusCode::kInvalidArgument, HasSubstr("poll_interval: expected")));
}

}  // namespace
}  // namespace tidemark
