#include "storage/io/thread_priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

int Niceness() { return getpriority(PRIO_PROCESS, 0); }

// By the numbers of ioprio_set(2).
constexpr long kIdle = 3;
long IoClass() { return syscall(SYS_ioprio_get, /*a thread*/ 1, 0) >> 13; }

TEST(ThreadPriority, IsThatOfTheCallingThreadAndOfThoseThatItStarts) {
  const int before = Niceness();
  const long io_before = IoClass();
  std::thread([&] {
    EXPECT_THAT(LowerThreadPriority(3, true), IsOk());
    EXPECT_EQ(Niceness(), std::min(before + 3, kNiceMax));
    EXPECT_EQ(IoClass(), kIdle);
    std::thread([&] {
      EXPECT_EQ(Niceness(), std::min(before + 3, kNiceMax));
      EXPECT_EQ(IoClass(), kIdle);
    }).join();
  }).join();
  EXPECT_EQ(Niceness(), before);
  EXPECT_EQ(IoClass(), io_before);
}

TEST(ThreadPriority, StaysWhereNothingIsAskedFor) {
  const int before = Niceness();
  EXPECT_THAT(LowerThreadPriority(0, false), IsOk());
  EXPECT_EQ(Niceness(), before);
}

TEST(ThreadPriority, GoesNoLowerThanTheLowest) {
  std::thread([] {
    EXPECT_THAT(LowerThreadPriority(kNiceMax, false), IsOk());
    EXPECT_THAT(LowerThreadPriority(kNiceMax, false), IsOk());
    EXPECT_EQ(Niceness(), kNiceMax);
  }).join();
}

TEST(ThreadPriority, SaysWhatTheKernelRefusedAndDoesTheRest) {
  const std::string answer = InChild([]() -> std::string {
    if (!DenySystemCalls({SYS_setpriority}, EPERM)) return "SKIP";
    const absl::Status status = LowerThreadPriority(1, true);
    return status.ToString() + (IoClass() == kIdle ? "; idle" : "; not idle");
  });
  if (answer == "SKIP") GTEST_SKIP() << "this process may not install a system call filter";
  EXPECT_EQ(answer, "PERMISSION_DENIED: set the niceness of a thread: Operation not permitted (EPERM); idle");
  EXPECT_EQ(InChild([]() -> std::string {
              DenySystemCalls({SYS_ioprio_set}, ENOSYS);
              return std::string(LowerThreadPriority(0, true).message());
            }),
            "set the I/O priority of a thread: Function not implemented (ENOSYS)");
}

}  // namespace
}  // namespace tidemark::storage
