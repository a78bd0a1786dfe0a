#include "storage/io/queues/thread_queue.h"

#include <sys/syscall.h>

#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using testing::StartsWith;

// A file whose reads wait for a gate, and which counts the reads that wait.
class GatedFile final : public File {
 public:
  const std::string& path() const override { return path_; }
  bool direct() const override { return false; }
  absl::StatusOr<uint64_t> Size() override { return 0; }
  absl::Status ReadAt(uint64_t, std::span<std::byte>) override {
    absl::MutexLock lock(&mutex_);
    ++reading_;
    mutex_.Await(absl::Condition(&open_));
    --reading_;
    return absl::OkStatus();
  }
  absl::Status WriteAt(uint64_t, std::span<const std::byte>) override { return absl::DataLossError("written"); }
  absl::Status Allocate(uint64_t) override { return absl::OkStatus(); }
  absl::Status Truncate(uint64_t) override { return absl::OkStatus(); }
  absl::Status SyncData() override { return absl::OkStatus(); }
  absl::Status Close() override { return absl::OkStatus(); }

  void WaitForReads(int count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count] {
      mutex_.AssertHeld();
      return reading_ == count;
    };
    mutex_.Await(absl::Condition(&enough));
  }
  void OpenGate() {
    absl::MutexLock lock(&mutex_);
    open_ = true;
  }

 private:
  const std::string path_ = "gated";
  absl::Mutex mutex_;
  int reading_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(ThreadQueue, RunsAsManyAtOnceAsItHasThreads) {
  for (const auto& [depth, threads] : {std::pair(1, 1), std::pair(3, 3), std::pair(16, 4)}) {
    GatedFile file;
    auto queue = ThreadQueue::Create(static_cast<size_t>(depth));
    ASSERT_THAT(queue, IsOk());
    for (int i = 0; i < depth; ++i) (*queue)->Submit({.file = &file});
    file.WaitForReads(threads);
    EXPECT_FALSE((*queue)->Poll().has_value());
    file.OpenGate();
    for (int i = 0; i < depth; ++i) EXPECT_THAT((*queue)->Wait().status, IsOk());
  }
}

TEST(ThreadQueue, HandsBackWhatTheFileSays) {
  GatedFile file;
  auto queue = ThreadQueue::Create(1);
  ASSERT_THAT(queue, IsOk());
  (*queue)->Submit({.kind = IoRequest::Kind::kWrite, .file = &file, .tag = 9});
  const IoCompletion completion = (*queue)->Wait();
  EXPECT_EQ(completion.tag, 9u);
  EXPECT_THAT(completion.status, StatusIs(absl::StatusCode::kDataLoss, "written"));
}

TEST(ThreadQueue, IsResourceExhaustedWhereTheSystemGivesNoThread) {
  const std::string answer = InChild([&]() -> std::string {
    if (!DenySystemCalls({SYS_clone, SYS_clone3}, EAGAIN)) return "SKIP";
    return ThreadQueue::Create(4).status().ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  EXPECT_THAT(answer, StartsWith("RESOURCE_EXHAUSTED: start I/O thread 1 of 4: "));
}

}  // namespace
}  // namespace tidemark::storage
