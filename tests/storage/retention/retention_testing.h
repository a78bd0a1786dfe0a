// A store on a disk that may fail, and what retention does to it.

#ifndef TIDEMARK_TESTS_STORAGE_RETENTION_RETENTION_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_RETENTION_RETENTION_TESTING_H_

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/retention/retention.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {

class RetentionTest : public testing::Test {
 protected:
  RetentionTest() { Reopen(); }

  void Reopen() {
    store_.reset();
    auto store = OpenStore(directory_.path(), &warnings_, files_);
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }

  LeaseObserver Observer(std::string machine = "here") {
    return LeaseObserver(files_, store_->layout(), std::move(machine), [this] { return now_; });
  }
  Retention Make(RetentionOptions options) {
    return Retention(
        *store_, std::move(options), [this](std::string_view line) { warnings_ += std::string(line) + "\n"; },
        Observer());
  }
  // "step: reason" of what was deleted.
  std::vector<std::string> Apply(Retention& retention, const Claims& claims = {}) {
    auto marked = retention.Apply([&] { return claims; });
    EXPECT_THAT(marked, IsOk());
    std::vector<std::string> lines;
    if (!marked.ok()) return lines;
    for (const RetentionDecision& decision : *marked) {
      EXPECT_FALSE(decision.keep);
      lines.push_back(absl::StrCat(decision.step, ": ", decision.reason));
    }
    return lines;
  }
  std::unique_ptr<Lease> Take(const ShardIdentity& identity, std::string machine = "here") {
    LeaseNote note;
    note.step = identity.step;
    note.attempt = identity.attempt;
    note.evaluator = "validation";
    note.holder = "worker 1";
    note.expiry = absl::Seconds(60);
    auto lease = Observer(std::move(machine)).Acquire(note);
    EXPECT_THAT(lease, IsOk());
    return lease.ok() ? *std::move(lease) : nullptr;
  }
  // Of one whose holder was killed, or is on a machine whose locks do not reach here.
  void LeaveLease(const ShardIdentity& identity, std::string machine) {
    std::unique_ptr<Lease> lease = Take(identity, std::move(machine));
    const std::string path = LeasePath(identity);
    std::filesystem::copy_file(path, path + ".copy");
    lease.reset();
    std::filesystem::rename(path + ".copy", path);
  }
  std::string LeasePath(const ShardIdentity& identity) const {
    return store_->layout().leases() + "/" + LeaseFileName(identity.attempt, "validation");
  }
  bool HasFiles(const ShardIdentity& identity) const {
    return std::filesystem::exists(store_->layout().shard(identity.step, identity.attempt, 0, 1));
  }
  StepInfo InfoOf(int64_t step) const { return (*store_->catalog().Find(step))->info; }

  const TestDirectory directory_ = TestDirectory::InMemory();
  FailingFileSystem files_{PosixFileSystem()};
  std::string warnings_;
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<Store> store_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RETENTION_RETENTION_TESTING_H_
