#include "tools/checkpoint_inspect/cli/sandbox.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kLandlock = 444;  // SYS_landlock_create_ruleset

// What `body` writes to its standard output, and "ended by signal N" where it does not end by itself.
std::string InProcess(const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) said.append(buffer, size);
  close(ends[0]);
  int how = 0;
  waitpid(child, &how, 0);
  if (WIFSIGNALED(how)) said += "ended by signal " + std::to_string(WTERMSIG(how));
  return said;
}

void Say(const std::string& text) {
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(3);
}

// "name: " and what the call gave: "done", or the error's name.
void Report(const std::string& name, int64_t result) {
  const int error = errno;
  Say(name + ": " + (result == -1 ? strerrorname_np(error) : "done") + "\n");
}

class SandboxTest : public testing::Test {
 protected:
  SandboxTest() {
    std::filesystem::create_directory(directory_ / "store");
    std::ofstream(file_) << "text";
    std::ofstream(outside_) << "text";
    if (pipe(pipe_) != 0) reason_ = "no pipe can be had";
    if (storage::kThreadSanitizer) reason_ = storage::kNoThreadsInChild;
    if (storage::kAddressSanitizer) reason_ = storage::kNoSandbox;
    const std::string can =
        storage::InChild([] { return storage::DenySystemCalls({SYS_sethostname}, EPERM) ? "yes" : "no"; });
    if (can != "yes") reason_ = "system calls cannot be denied here";
  }
  ~SandboxTest() override {
    for (const int end : pipe_) close(end);
  }
  void SetUp() override {
    if (!reason_.empty()) GTEST_SKIP() << reason_;
  }

  void Enter() const {
    const absl::StatusOr<std::string> lacking = EnterSandbox(store_);
    Say(lacking.ok() ? "lacking: " + *lacking + "\n" : lacking.status().ToString());
    if (!lacking.ok()) _exit(0);
  }

  // All that would change something, reach somebody or run something.
  void TryToEscape() const {
    Report("write a file", open(file_.c_str(), O_WRONLY));
    Report("append to a file", open(file_.c_str(), O_RDONLY | O_APPEND | O_CREAT, 0600));
    Report("cut a file", open(file_.c_str(), O_RDONLY | O_TRUNC));
    Report("make a file", open((store_ + "/new").c_str(), O_RDWR | O_CREAT, 0600));
    Report("make a nameless file", open(store_.c_str(), O_RDWR | O_TMPFILE, 0600));
    open_how how = {};
    how.flags = O_WRONLY;
    Report("write by openat2", syscall(SYS_openat2, AT_FDCWD, file_.c_str(), &how, sizeof(how)));
    Report("remove", unlink(file_.c_str()));
    Report("rename", rename(file_.c_str(), (store_ + "/renamed").c_str()));
    Report("make a folder", mkdir((store_ + "/folder").c_str(), 0700));
    Report("make a link", symlink("/", (store_ + "/link").c_str()));
    Report("change a mode", chmod(file_.c_str(), 0644));
    Report("cut by name", truncate(file_.c_str(), 0));
    TryToReachOthers();
  }

  void TryToReachOthers() const {
    Report("socket", socket(AF_INET, SOCK_STREAM, 0));
    Report("unix socket", socket(AF_UNIX, SOCK_STREAM, 0));
    Report("fork", fork());
    char name[] = "/bin/true";
    char* const arguments[] = {name, nullptr};
    Report("run", execve(name, arguments, nullptr));
    Report("signal", kill(getppid(), 0));
    Report("trace", ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr));
    Report("io_uring", syscall(SYS_io_uring_setup, 1, nullptr));
    const void* const code = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Report("make code", code == MAP_FAILED ? -1 : 0);
    Report("write to a pipe of the caller's", write(pipe_[1], "x", 1));
  }

  const storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  const std::string file_ = directory_ / "store/file";
  const std::string outside_ = directory_ / "outside";
  int pipe_[2] = {-1, -1};
  std::string reason_;
};

TEST_F(SandboxTest, NothingChangesReachesOrRunsAnything) {
  const std::string said = InProcess([&] {
    Enter();
    TryToEscape();
  });
  EXPECT_THAT(said, AllOf(HasSubstr("lacking: "), HasSubstr("write to a pipe of the caller's: EPERM")));
  EXPECT_THAT(said, Not(HasSubstr(": done"))) << said;
  EXPECT_THAT(said, Not(HasSubstr("ended by signal")));
  EXPECT_TRUE(std::filesystem::exists(file_));
}

TEST_F(SandboxTest, TheFilterAloneHoldsAllOfThat) {
  const std::string said = InProcess([&] {
    if (!storage::DenySystemCalls({kLandlock}, ENOSYS)) return;
    Enter();
    TryToEscape();
  });
  EXPECT_THAT(said, AllOf(HasSubstr("lacking: this kernel has no Landlock, so the sandbox is weaker\n"),
                          HasSubstr("write to a pipe of the caller's: EPERM")));
  EXPECT_THAT(said, Not(HasSubstr(": done"))) << said;
  EXPECT_THAT(said, Not(HasSubstr("ended by signal")));
}

TEST_F(SandboxTest, LandlockAloneHoldsFilesBack) {
  const std::string said = InProcess([&] {
    if (!storage::DenySystemCalls({SYS_seccomp}, ENOSYS)) return;
    Enter();
    Report("write", open(file_.c_str(), O_WRONLY));
    Report("make", open((store_ + "/new").c_str(), O_RDWR | O_CREAT, 0600));
    Report("look outside", open(outside_.c_str(), O_RDONLY));
    char name[] = "/bin/true";
    char* const arguments[] = {name, nullptr};
    Report("run", execve(name, arguments, nullptr));
  });
  if (said.find("no Landlock") != std::string::npos) GTEST_SKIP() << said;
  EXPECT_THAT(said, HasSubstr("lacking: this kernel has no seccomp filter, so the sandbox is weaker\n"));
  EXPECT_THAT(said, AllOf(HasSubstr("write: EACCES"), HasSubstr("make: EACCES"), HasSubstr("look outside: EACCES"),
                          HasSubstr("run: EACCES")));
}

TEST_F(SandboxTest, SaysThatTheKernelHasNeither) {
  const std::string said = InProcess([&] {
    if (storage::DenySystemCalls({kLandlock, SYS_seccomp}, ENOSYS)) Enter();
  });
  EXPECT_EQ(said, "lacking: this kernel has no Landlock and no seccomp filter, so the sandbox is missing\n");
}

TEST(DescribeLacking, TellsTheKernelFromTheArchitecture) {
  EXPECT_EQ(DescribeLacking(true, true, true), "");
  EXPECT_EQ(DescribeLacking(true, false, false),
            "there is no seccomp filter for this architecture, so the sandbox is weaker");
  EXPECT_EQ(DescribeLacking(false, false, false),
            "this kernel has no Landlock, and there is no seccomp filter for this architecture, so the sandbox is "
            "missing");
}

// A C library that is newer than this list falls back to what it used before.
TEST_F(SandboxTest, CallsThatAreNewerThanTheFilterAreNotThere) {
  const std::string said = InProcess([&] {
    Enter();
    Report("cachestat", syscall(451));
    Report("a later one", syscall(10000));
    Report("a known one", syscall(SYS_sethostname, "", 0));
  });
  EXPECT_THAT(said, HasSubstr("cachestat: ENOSYS\na later one: ENOSYS\na known one: EPERM\n"));
}

TEST_F(SandboxTest, WhatIsOutsideOfTheStoreCannotBeOpened) {
  const std::string said = InProcess([&] {
    Enter();
    Report("beside it", open(outside_.c_str(), O_RDONLY));
    Report("above it", open((store_ + "/..").c_str(), O_RDONLY | O_DIRECTORY));
    Report("far away", open("/etc/passwd", O_RDONLY));
  });
  if (said.find("no Landlock") != std::string::npos) GTEST_SKIP() << said;
  EXPECT_THAT(said, HasSubstr("beside it: EACCES\nabove it: EACCES\nfar away: EACCES\n"));
}

TEST_F(SandboxTest, TheStoreIsReadByThreads) {
  const std::string said = InProcess([&] {
    Enter();
    std::thread([&] {
      char text[4] = {};
      Report("read", pread(open(file_.c_str(), O_RDONLY), text, sizeof(text), 0));
      Say(std::string(text, sizeof(text)) + "\n");
      Report("list", open(store_.c_str(), O_RDONLY | O_DIRECTORY));
    }).join();
  });
  EXPECT_THAT(said, HasSubstr("read: done\ntext\nlist: done\n"));
}

// If it has that one: a container's root may not.
TEST_F(SandboxTest, RootKeepsOneRight) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string status = ReadWhole("/proc/self/status");
  uint64_t before = 0;
  const size_t permitted = status.find("CapPrm:");
  ASSERT_TRUE(permitted != std::string::npos && std::sscanf(&status[permitted], "CapPrm: %" SCNx64, &before) == 1);
  const uint64_t kept = before & (1 << CAP_DAC_READ_SEARCH);
  const std::string said = InProcess([&] {
    const int status = open("/proc/self/status", O_RDONLY);
    Enter();
    char text[4096] = {};
    if (pread(status, text, sizeof(text) - 1, 0) > 0) Say(text);
  });
  EXPECT_THAT(said, AllOf(HasSubstr(fmt::format("CapPrm:\t{:016x}\n", kept)),
                          HasSubstr(fmt::format("CapEff:\t{:016x}\n", kept)), HasSubstr("CapInh:\t0000000000000000\n"),
                          HasSubstr("NoNewPrivs:\t1\n")));
}

TEST_F(SandboxTest, NeedsADirectory) {
  EXPECT_THAT(EnterSandbox(directory_ / "none"),
              storage::StatusIs(absl::StatusCode::kNotFound, HasSubstr("open directory " + (directory_ / "none"))));
  EXPECT_THAT(EnterSandbox(file_), storage::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ENOTDIR")));
}

}  // namespace
}  // namespace tidemark::inspect
