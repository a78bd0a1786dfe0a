// UringQueue where the kernel refuses a submission, interrupts a wait, or completes a request with an error or with
// less than was asked for.

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/errno_status.h"
#include "storage/io/queues/uring_queue.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/system_calls.h"
#include "tests/storage/io/test_directory.h"

namespace {

// What the kernel is to answer; one request is in flight at a time.
struct KernelAnswers {
  std::deque<int> submissions;   // instead of taking what is submitted
  std::deque<int> waits;         // instead of waiting
  std::deque<int> completions;   // in the place of its own result; the request has been carried out
  std::deque<unsigned> lengths;  // of which no more is transferred
  size_t submitted = 0;
};
KernelAnswers answers;

template <typename T>
std::optional<T> Take(std::deque<T>& left) {
  if (left.empty()) return std::nullopt;
  const T first = left.front();
  left.pop_front();
  return first;
}

}  // namespace

extern "C" {

int __real_io_uring_submit(io_uring* ring);
int __real___io_uring_get_cqe(io_uring* ring, io_uring_cqe** cqe, unsigned submit, unsigned wait, sigset_t* mask);

int __wrap_io_uring_submit(io_uring* ring) {
  if (const auto refusal = Take(answers.submissions)) return *refusal;
  ++answers.submitted;
  io_uring_sqe& last = ring->sq.sqes[(ring->sq.sqe_tail - 1) & *ring->sq.kring_mask];
  if (const auto length = Take(answers.lengths)) last.len = std::min<unsigned>(last.len, *length);
  const int result = __real_io_uring_submit(ring);
  if (result <= 0 || answers.completions.empty()) return result;
  io_uring_cqe* cqe = nullptr;
  while (__real___io_uring_get_cqe(ring, &cqe, 0, 1, nullptr) != 0) {
  }
  cqe->res = *Take(answers.completions);
  return result;
}

int __wrap___io_uring_get_cqe(io_uring* ring, io_uring_cqe** cqe, unsigned submit, unsigned wait, sigset_t* mask) {
  if (const auto answer = Take(answers.waits)) return *answer;
  return __real___io_uring_get_cqe(ring, cqe, submit, wait, mask);
}

}  // extern "C"

namespace tidemark::storage {
namespace {

class UringFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    answers = {};
    auto queue = UringQueue::Create(1);
    if (!queue.ok()) GTEST_SKIP() << queue.status();
    queue_ = *std::move(queue);
    auto file = PosixFileSystem().Create(path_, /*direct=*/false);
    ASSERT_THAT(file, IsOk());
    file_ = *std::move(file);
    for (size_t i = 0; i < written_.size(); ++i) written_[i] = static_cast<std::byte>(i * 31 + 1);
  }

  absl::Status Transfer(IoRequest::Kind kind, std::vector<std::byte>& data) {
    queue_->Submit({.kind = kind, .file = file_.get(), .data = data.data(), .size = data.size(), .tag = 5});
    const IoCompletion completion = queue_->Wait();
    EXPECT_EQ(completion.tag, 5u);
    EXPECT_EQ(queue_->in_flight(), 0u);
    return completion.status;
  }
  absl::Status Write() { return Transfer(IoRequest::Kind::kWrite, written_); }
  absl::Status Read() { return Transfer(IoRequest::Kind::kRead, read_); }

  // And nothing is left of what went wrong.
  void ExpectSound() {
    answers = {};
    EXPECT_THAT(Write(), IsOk());
    std::fill(read_.begin(), read_.end(), std::byte{0});
    EXPECT_THAT(Read(), IsOk());
    EXPECT_TRUE(read_ == written_);
  }

  const TestDirectory directory_;
  const std::string path_ = directory_ / "x";
  std::unique_ptr<IoQueue> queue_;
  std::unique_ptr<File> file_;
  std::vector<std::byte> written_ = std::vector<std::byte>(100'000);
  std::vector<std::byte> read_ = std::vector<std::byte>(100'000);
};

TEST_F(UringFaultsTest, SubmitsAgainWhatTheKernelDidNotTakeForTheMoment) {
  answers.submissions = {-EINTR, -EAGAIN, -EBUSY, -ENOMEM, 0};
  EXPECT_THAT(Write(), IsOk());
  EXPECT_EQ(answers.submitted, 1u);
  ExpectSound();
}

TEST_F(UringFaultsTest, WaitsAgainWhereAWaitWasInterrupted) {
  answers.waits = {-EINTR, -EAGAIN, -EINTR};
  EXPECT_THAT(Write(), IsOk());
  ExpectSound();
}

TEST_F(UringFaultsTest, AsksAgainAfterACompletionThatSaysSo) {
  answers.completions = {-EINTR, -EAGAIN, -EINTR};
  EXPECT_THAT(Write(), IsOk());
  EXPECT_EQ(answers.submitted, 4u);
  ExpectSound();
}

TEST_F(UringFaultsTest, GoesOnBehindShortTransfers) {
  answers.lengths = {1, 4096, 50'000};
  EXPECT_THAT(Write(), IsOk());
  EXPECT_EQ(answers.submitted, 4u);
  answers.lengths = {10, 60'000};
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(read_ == written_);
  ExpectSound();
}

TEST_F(UringFaultsTest, TransfersACancelledRequestByItself) {
  ASSERT_THAT(Write(), IsOk());
  for (const IoRequest::Kind kind : {IoRequest::Kind::kWrite, IoRequest::Kind::kRead}) {
    answers.completions = {-ECANCELED};
    const SystemCallFault count;
    EXPECT_THAT(Transfer(kind, kind == IoRequest::Kind::kRead ? read_ : written_), IsOk());
    EXPECT_THAT(count.calls(), testing::ElementsAre(kind == IoRequest::Kind::kRead ? "pread" : "pwrite"));
  }
  EXPECT_TRUE(read_ == written_);
}

TEST_F(UringFaultsTest, ReportsWhatACancelledRequestMeetsThen) {
  answers.completions = {-ECANCELED};
  const SystemCallFault fault("pwrite", EIO, 1);
  EXPECT_THAT(Write(), StatusIs(absl::StatusCode::kInternal,
                                "write 100000 bytes at 0 to " + path_ + ": Input/output error (EIO)"));
  ExpectSound();
}

// Also in the middle of a transfer.
TEST_F(UringFaultsTest, ReportsEveryErrorOfACompletion) {
  ASSERT_THAT(Write(), IsOk());
  for (const int error : {EIO, ENOSPC, EDQUOT, EFBIG, ENOMEM, ESTALE, ETIMEDOUT, EROFS, EBADF, EFAULT}) {
    for (const bool behind_a_short_one : {false, true}) {
      for (const IoRequest::Kind kind : {IoRequest::Kind::kWrite, IoRequest::Kind::kRead}) {
        const bool read = kind == IoRequest::Kind::kRead;
        answers.completions = {-error};
        if (behind_a_short_one) answers.completions.push_front(777);
        const absl::Status expected = ErrnoStatus(
            error, fmt::format("{} 100000 bytes at 0 {}", read ? "read" : "write", read ? "of" : "to"), path_);
        EXPECT_THAT(Transfer(kind, read ? read_ : written_),
                    StatusIs(expected.code(), std::string(expected.message())));
      }
    }
  }
  ExpectSound();
}

TEST_F(UringFaultsTest, ReportsAnEndOfTheFileAndAWriteThatGetsNowhere) {
  answers.completions = {0};
  EXPECT_THAT(Write(),
              StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("the file system took only 0 of them")));
  answers.completions = {12, 0};
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("ends after 12 of them")));
  ExpectSound();
}

}  // namespace
}  // namespace tidemark::storage
