#include "tests/storage/io/child_process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark::storage {
namespace {

// Far more than any child takes, beside other tests and under a sanitizer.
constexpr unsigned kHangSeconds = 300;

// Not that which changes the directory: it takes no memory and no lock.
std::string ThreadsThatMayHoldAMutex() {
  std::string names;
  for (const std::string& name : OtherThreads()) {
    if (name != "chdir") names += " " + name;
  }
  return names;
}

// A thread that holds a mutex at the fork never gives it back in the child: one of RocksDB's pool, say, or that of
// AddressSanitizer's memory. The child then hangs, once in thousands of runs. ctest runs each test in a process of its
// own; in a process with several of them the threads may be an earlier one's.
void ExpectNoThreadsThatMayHoldAMutex() {
  if (testing::UnitTest::GetInstance()->test_to_run_count() > 1) return;
  // The kernel shows a thread for a moment after it was joined.
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  std::string threads;
  while (!(threads = ThreadsThatMayHoldAMutex()).empty() && absl::Now() < deadline)
    absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(threads, "") << "a child must be forked before there are threads";
}

// An exception may not leave the child's part of InChild: the child would go on as a second test runner.
std::string AnswerOf(const std::function<std::string()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return std::string("threw ") + error.what();
  }
}

bool WriteAll(const char* path, const std::string& text) {
  std::ofstream out(path);
  out << text << std::flush;
  return out.good();
}

// What the child writes until its end, or how it died.
std::string AwaitAnswer(pid_t child, int from) {
  std::string answer;
  char buffer[4096];
  for (ssize_t size; (size = read(from, buffer, sizeof(buffer))) > 0;) answer.append(buffer, size);
  close(from);
  int how = 0;
  waitpid(child, &how, 0);
  if (WIFSIGNALED(how)) return "killed by signal " + std::to_string(WTERMSIG(how));
  if (WEXITSTATUS(how) != 0) return "exited with " + std::to_string(WEXITSTATUS(how));
  return answer;
}

// The calling process gets `error` where what `program` has loaded is one of `values`.
bool InstallFilter(std::vector<sock_filter> program, std::initializer_list<int> values, int error) {
  for (const int value : values) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(value), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace

std::vector<std::string> OtherThreads() {
  const std::string self = std::to_string(gettid());
  std::vector<std::string> names;
  std::error_code error;  // of a child that may open nothing; or the thread has just ended
  for (std::filesystem::directory_iterator entry("/proc/self/task", error); !error && entry != end(entry);
       entry.increment(error)) {
    if (entry->path().filename() == self) continue;
    std::ifstream in(entry->path() / "comm");
    std::string name;
    if (std::getline(in, name)) names.push_back(std::move(name));
  }
  return names;
}

std::string InChild(const std::function<std::string()>& body) {
  if (!kThreadSanitizer) ExpectNoThreadsThatMayHoldAMutex();
  return InChildBesideThreads(body);
}

std::string InChildBesideThreads(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    alarm(kHangSeconds);
    const std::string answer = AnswerOf(body);
    const bool told = write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  return AwaitAnswer(child, ends[0]);
}

std::string InProgram(const std::string& path, std::vector<std::string> arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  arguments.insert(arguments.begin(), path);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  if (posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  return AwaitAnswer(child, ends[0]);
}

bool DenySystemCalls(std::initializer_list<int> numbers, int error) {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  return InstallFilter(std::move(program), numbers, error);
}

bool DenyUringRegister(std::initializer_list<int> operations, int error) {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 1, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])));  // its lower half
  return InstallFilter(std::move(program), operations, error);
}

bool EnterMountNamespace() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS | (user == 0 ? 0 : CLONE_NEWUSER)) != 0) return false;
  if (user != 0) {
    // Who has no number in a user namespace cannot own files there.
    if (!WriteAll("/proc/self/setgroups", "deny")) return false;
    if (!WriteAll("/proc/self/uid_map", "0 " + std::to_string(user) + " 1")) return false;
    if (!WriteAll("/proc/self/gid_map", "0 " + std::to_string(group) + " 1")) return false;
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool GiveUpRights() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

}  // namespace tidemark::storage
