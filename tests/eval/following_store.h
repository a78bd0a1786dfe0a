// What the tests of StoreFollower share: a follower in a world where time passes only while it waits.

#ifndef TIDEMARK_TESTS_EVAL_FOLLOWING_STORE_H_
#define TIDEMARK_TESTS_EVAL_FOLLOWING_STORE_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/store_follower.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark {

// The one entry of a step of test_store.h.
inline double ValueOf(const Snapshot& snapshot) {
  int64_t value = -1;
  const auto index = snapshot.Find("value");
  if (index) std::memcpy(&value, snapshot.bytes(*index).data(), sizeof(value));
  return static_cast<double>(value);
}

class FollowingStore : public testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_ / "store";
    options_.evaluator = "validation";
    options_.idle_timeout = absl::ZeroDuration();
    Observe({});
    function_ = [this](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
      asked_.push_back(snapshot.step());
      if (during_) during_(snapshot.step());
      return Metrics{{"value", ValueOf(snapshot)}};
    };
  }
  // Warnings go to warnings_.
  void Observe(ObserverFunctions told) {
    told.warning = [this](std::string_view line) { warnings_ += std::string(line) + "\n"; };
    options_.observer = ObserverOf(std::move(told));
  }
  void OpenStore() { store_ = storage::OpenSoundStore(options_.directory, &store_warnings_); }
  storage::ShardIdentity CommitStep(int64_t step) { return storage::CommitStep(*store_, step, 100 + step); }

  absl::StatusOr<WorkerReport> Run() {
    if (absl::Status status = ValidateWorkerOptions(options_); !status.ok()) return status;
    return StoreFollower(options_, function_,
                         {.locate = [this] { return locate_ ? locate_() : options_.directory; },
                          .hold =
                              [this](const std::string&) {
                                return std::shared_ptr<storage::FileSystem>(std::shared_ptr<void>(), &files_);
                              },
                          .now = [this] { return now_; },
                          .signalled = [this] { return signalled_; },
                          .wait =
                              [this](absl::Duration duration) {
                                waits_.push_back(duration);
                                now_ += duration;
                                if (on_wait_) on_wait_(waits_.size());
                              }})
        .Run();
  }
  // The only row of a step that the holder of the store has by now.
  Evaluation RowOf(int64_t step) {
    EXPECT_THAT(store_->Look(), storage::IsOk());
    auto record = store_->catalog().Find(step);
    EXPECT_TRUE(record.ok() && record->has_value());
    const std::vector<Evaluation>& rows = (*record)->info.evaluations;
    EXPECT_EQ(rows.size(), 1u) << "step " << step;
    return rows.empty() ? Evaluation{} : rows[0];
  }
  absl::Status ReportBySomebodyElse(int64_t step, Evaluation row) {
    row.evaluator = "validation";
    return OtherProcess(options_.directory).Report(step, std::move(row));
  }
  std::unique_ptr<storage::Lease> LeaseBySomebodyElse(const storage::ShardIdentity& identity) {
    storage::LeaseObserver other(files_, store_->layout(), storage::ThisMachine(), [this] { return now_; });
    auto lease = other.Acquire({.step = identity.step,
                                .attempt = identity.attempt,
                                .evaluator = "validation",
                                .holder = "another worker",
                                .expiry = absl::Seconds(60)});
    EXPECT_THAT(lease, storage::IsOk());
    return lease.ok() ? *std::move(lease) : nullptr;
  }

  storage::TestDirectory directory_;
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  std::string store_warnings_;
  std::unique_ptr<storage::Store> store_;
  WorkerOptions options_;
  std::function<std::string()> locate_;  // null: the store is where the options say
  EvaluatorFunction function_;
  std::function<void(int64_t step)> during_;   // while a step is evaluated
  std::function<void(size_t count)> on_wait_;  // after the count-th wait
  bool signalled_ = false;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  std::vector<int64_t> asked_;
  std::vector<absl::Duration> waits_;
  std::string warnings_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_EVAL_FOLLOWING_STORE_H_
