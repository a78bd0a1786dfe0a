// InboxFixture: a store, and an inbox beside it with whatever a test puts there.

#ifndef TIDEMARK_TESTS_STORAGE_MANIFEST_INBOX_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_MANIFEST_INBOX_TESTING_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "storage/manifest/inbox.h"
#include "storage/manifest/report_files.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {

inline bool IsManifestsSync(const FailingFileSystem::Call& call) {
  return call.operation == "SyncData" && call.path.find("/manifest/") != std::string::npos &&
         call.path.ends_with(".log");
}

// A test opens `store_` itself, on `files_` or, where its own calls are to fail as well, on `failing_`.
class InboxFixture : public testing::Test {
 protected:
  static std::vector<std::string> NamesIn(const std::string& directory) {
    std::vector<std::string> names;
    if (!std::filesystem::exists(directory)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::vector<std::string> Inbox() const { return NamesIn(layout_.inbox()); }
  std::vector<std::string> Quarantine() const { return NamesIn(layout_.quarantine()); }

  void Place(const std::string& name, std::string_view contents) const {
    std::filesystem::create_directory(layout_.inbox());
    std::ofstream(layout_.inbox() + "/" + name, std::ios::binary) << contents;
  }

  StepInfo Info(int64_t step) const {
    const auto record = store_->manifest().Find(step);
    EXPECT_THAT(record, IsOk());
    return record.ok() && record->has_value() ? (*record)->info : StepInfo{};
  }

  // Adds to `warnings_`.
  std::function<void(std::string_view)> Warn() {
    return [this](std::string_view line) { warnings_ += std::string(line) + "\n"; };
  }

  FileSystem& files_ = PosixFileSystem();
  FailingFileSystem failing_{files_};
  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
  std::unique_ptr<Store> store_;
};

// With step 10 committed, and reports.
class ReportInboxFixture : public InboxFixture {
 protected:
  void SetUp() override {
    store_ = OpenSoundStore(path_, &warnings_);
    ASSERT_NE(store_, nullptr);
    step_ = CommitStep(*store_, 10, 42);
  }

  MetricReport ReportOn(const ShardIdentity& identity, double loss, const std::string& evaluator = "validation") const {
    return {.store = identity.store,
            .step = identity.step,
            .attempt = identity.attempt,
            .evaluation = {.evaluator = evaluator,
                           .worker = "worker",
                           .metrics = {{"loss", loss}},
                           .reported = absl::FromUnixSeconds(1'700'000'000),
                           .took = absl::Seconds(2)}};
  }

  std::string InboxPathOf(const MetricReport& report) const {
    return layout_.inbox() + "/" + InboxFileName(report.step, report.attempt, report.evaluation.evaluator);
  }
  std::string FolderPathOf(const MetricReport& report) const {
    return layout_.attempt(report.step, report.attempt) + "/" + MetricFileName(report.evaluation.evaluator);
  }

  absl::Status Deliver(const MetricReport& report) { return DeliverReport(files_, layout_, report); }
  InboxResult Collect(std::set<std::string>* warned = nullptr) {
    return CollectInbox(failing_, *store_, Warn(), warned);
  }

  ShardIdentity step_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_MANIFEST_INBOX_TESTING_H_
