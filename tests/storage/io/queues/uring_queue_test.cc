#include "storage/io/queues/uring_queue.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ostream>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr unsigned kUnknownFlag = 1u << 30;

TEST(UringQueue, TakesTheFirstSetupThatTheKernelKnows) {
  if (auto plain = UringQueue::Create(4); !plain.ok()) GTEST_SKIP() << plain.status();
  const unsigned setups[] = {kUnknownFlag, 0};
  auto queue = UringQueue::Create(4, setups);
  ASSERT_THAT(queue, IsOk());
  EXPECT_EQ((*queue)->depth(), 4u);
}

TEST(UringQueue, IsUnavailableWhereTheKernelKnowsNone) {
  if (auto plain = UringQueue::Create(4); !plain.ok()) GTEST_SKIP() << plain.status();
  const unsigned setups[] = {kUnknownFlag, kUnknownFlag};
  EXPECT_THAT(UringQueue::Create(4, setups),
              StatusIs(StatusCode::kUnavailable, "set up io_uring: Invalid argument (EINVAL)"));
}

struct Denial {
  const char* name;
  int call;
  int error;
  const char* message;
};

void PrintTo(const Denial& denial, std::ostream* out) { *out << denial.name; }

// Sandboxes and old kernels, as the process sees them.
class UringQueueDenied : public testing::TestWithParam<Denial> {};

TEST_P(UringQueueDenied, IsUnavailableWithTheReasonAndThreadsTakeItsPlace) {
  if (auto plain = UringQueue::Create(4); !plain.ok()) GTEST_SKIP() << plain.status();
  const Denial& denial = GetParam();
  const std::string answer = InChild([&]() -> std::string {
    if (!DenySystemCalls({denial.call}, denial.error)) return "SKIP";
    auto queue = PosixFileSystem().NewIoQueue(IoQueueKind::kAuto, 4);
    if (!queue.ok()) return queue.status().ToString();
    return std::string((*queue)->name()) + "; " + std::string((*queue)->note()) + "; " +
           PosixFileSystem().NewIoQueue(IoQueueKind::kUring, 4).status().ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  EXPECT_EQ(answer, std::string("threads; ") + denial.message + "; UNAVAILABLE: " + denial.message);
}

INSTANTIATE_TEST_SUITE_P(
    All, UringQueueDenied,
    testing::Values(
        Denial{"SetupEnosys", SYS_io_uring_setup, ENOSYS, "set up io_uring: Function not implemented (ENOSYS)"},
        Denial{"SetupEperm", SYS_io_uring_setup, EPERM, "set up io_uring: Operation not permitted (EPERM)"},
        Denial{"SetupEnomem", SYS_io_uring_setup, ENOMEM, "set up io_uring: Cannot allocate memory (ENOMEM)"},
        Denial{"EnterEperm", SYS_io_uring_enter, EPERM, "enter io_uring: Operation not permitted (EPERM)"},
        Denial{"RegisterEperm", SYS_io_uring_register, EPERM,
               "probe operations of io_uring: Operation not permitted (EPERM)"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(UringQueue, IsWhatAutoTakesWhereThereIsOne) {
  if (auto plain = UringQueue::Create(4); !plain.ok()) GTEST_SKIP() << plain.status();
  auto queue = PosixFileSystem().NewIoQueue(IoQueueKind::kAuto, 4);
  ASSERT_THAT(queue, IsOk());
  EXPECT_EQ((*queue)->name(), "io_uring");
  EXPECT_EQ((*queue)->note(), "");
}

// Transfers that block then come back cancelled.
TEST(UringQueue, TransfersByItselfWhereTheKernelCanStartNoWorker) {
  if (auto plain = UringQueue::Create(4); !plain.ok()) GTEST_SKIP() << plain.status();
  TestDirectory directory;
  auto file = PosixFileSystem().Create(directory / "x", false);
  ASSERT_THAT(file, IsOk());
  constexpr size_t kPieces = 16;
  constexpr size_t kPiece = 1 << 16;
  std::vector<std::byte> written(kPieces * kPiece, std::byte{'w'});
  const std::string answer = InChild([&]() -> std::string {
    file = PosixFileSystem().OpenForRewrite(directory / "x", false);  // the parent's is closed here
    const rlimit none = {};
    constexpr uid_t kNobody = 65534;  // the limit does not hold for root
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) return "SKIP";
    if (setrlimit(RLIMIT_NPROC, &none) != 0) return "SKIP";
    auto queue = UringQueue::Create(kPieces);
    if (!queue.ok()) return queue.status().ToString();
    for (size_t i = 0; i < kPieces; ++i) {
      (*queue)->Submit({IoRequest::Kind::kWrite, file->get(), i * kPiece, written.data() + i * kPiece, kPiece, i});
    }
    absl::Status status;
    while ((*queue)->in_flight() > 0) status.Update((*queue)->Wait().status);
    return status.ToString();
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not limit its threads";
  EXPECT_EQ(answer, "OK");
  std::vector<std::byte> read(written.size());
  EXPECT_THAT((*file)->ReadAt(0, read), IsOk());
  EXPECT_EQ(read, written);
}

class UringQueueDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (auto plain = UringQueue::Create(4); !plain.ok()) GTEST_SKIP() << plain.status();
  }
  const TestDirectory directory_;
};

TEST_F(UringQueueDeathTest, SubmitFromASecondThreadEndsTheProcess) {
  auto queue = UringQueue::Create(4, UringSetups().subspan(1, 1));
  if (!queue.ok()) GTEST_SKIP() << queue.status();
  auto file = PosixFileSystem().Create(directory_ / "x", false);
  ASSERT_THAT(file, IsOk());
  std::byte byte = {};
  const IoRequest request = {.kind = IoRequest::Kind::kWrite, .file = file->get(), .data = &byte, .size = 1};
  (*queue)->Submit(request);
  EXPECT_THAT((*queue)->Wait().status, IsOk());
  EXPECT_DEATH(std::thread([&] { (*queue)->Submit(request); }).join(), "only the thread that submitted first may use");
}

TEST_F(UringQueueDeathTest, SubmitOfAFileWithoutDescriptorEndsTheProcess) {
  FailingFileSystem files(PosixFileSystem());
  auto file = files.Create(directory_ / "x", false);
  ASSERT_THAT(file, IsOk());
  auto queue = UringQueue::Create(4);
  ASSERT_THAT(queue, IsOk());
  std::byte byte = {};
  EXPECT_DEATH((*queue)->Submit({.file = file->get(), .data = &byte, .size = 1}), "a file that has no descriptor");
}

}  // namespace
}  // namespace tidemark::storage
