#include "tools/checkpoint_inspect/cli/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/io/unique_fd.h"

namespace tidemark::inspect {
namespace {

using storage::ErrnoStatus;
using storage::UniqueFd;

// Landlock as of its sixth version (Linux 6.12), by numbers of our own: the headers of the system that this is compiled
// on may be older than the kernel that it runs on. Kernels with the earlier versions know the front of each list.
constexpr uint64_t kReadFile = uint64_t{1} << 2;
constexpr uint64_t kReadDirectory = uint64_t{1} << 3;
constexpr int kFileRightsOfVersion[] = {13, 14, 15, 15, 16, 16};
constexpr uint64_t kNetworkRights = 3;  // bind and connect of TCP, from version 4 on
constexpr uint64_t kScopes = 3;         // abstract sockets and signals, from version 6 on
constexpr int kLandlockVersionMax = 6;

struct LandlockRuleset {
  uint64_t files = 0;
  uint64_t network = 0;
  uint64_t scopes = 0;
};

struct LandlockPathRule {
  uint64_t allowed = 0;
  int32_t directory = -1;
} __attribute__((packed));

constexpr unsigned kAskLandlockVersion = 1;
constexpr int kLandlockRulePath = 1;

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

// ENOSYS: not in this kernel. EOPNOTSUPP: switched off when it was started.
bool IsLacking(int error) { return error == ENOSYS || error == EOPNOTSUPP; }

// False where the kernel has no Landlock.
absl::StatusOr<bool> RestrictFiles(int directory, const std::string& path) {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskLandlockVersion);
  if (version < 0 && IsLacking(errno)) return false;
  if (version < 1) return ErrnoStatus(errno, "ask for Landlock, to confine", path);
  const int known = static_cast<int>(std::min<long>(version, kLandlockVersionMax));
  LandlockRuleset ruleset;
  ruleset.files = (uint64_t{1} << kFileRightsOfVersion[known - 1]) - 1;
  if (known >= 4) ruleset.network = kNetworkRights;
  if (known >= 6) ruleset.scopes = kScopes;
  const size_t size = known >= 6 ? 24 : known >= 4 ? 16 : 8;
  const UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &ruleset, size, 0)));
  if (!rules.valid()) return ErrnoStatus(errno, "make a Landlock ruleset for", path);
  const LandlockPathRule rule{.allowed = kReadFile | kReadDirectory, .directory = directory};
  if (syscall(SYS_landlock_add_rule, rules.get(), kLandlockRulePath, &rule, 0) != 0) {
    return ErrnoStatus(errno, "allow by Landlock to read", path);
  }
  if (syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0)
    return ErrnoStatus(errno, "confine by Landlock to", path);
  return true;
}

// One system call that stays, where `argument` is not negative only if the lower half of that argument, masked, has
// that value.
struct Allowed {
  long number = 0;
  int argument = -1;
  uint32_t mask = 0xffffffff;
  uint32_t value = 0;
};

// The highest number that somebody has looked at, set_mempolicy_home_node of Linux 5.17; the same on all architectures.
// To a library that tries a later one EPERM would be the last word; ENOSYS sends it back to those that it used before.
constexpr uint32_t kKnownCallMax = 450;

// All that opens something for writing or makes it.
constexpr uint32_t kOpenMask = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);

std::vector<Allowed> AllowedCalls() {
  std::vector<Allowed> allowed = {
      {SYS_openat, 2, kOpenMask, O_RDONLY},
      {SYS_clone, 0, CLONE_THREAD, CLONE_THREAD},
      // No code is made at run time.
      {SYS_mmap, 2, PROT_EXEC, 0},
      {SYS_mprotect, 2, PROT_EXEC, 0},
      // abort() sends a signal to its own thread.
      {SYS_tgkill, 0, 0xffffffff, static_cast<uint32_t>(getpid())},
      {SYS_ioctl, 1, 0xffffffff, TCGETS},
      {SYS_ioctl, 1, 0xffffffff, TIOCGWINSZ},
  };
  for (const uint32_t fd : {STDOUT_FILENO, STDERR_FILENO}) {
    allowed.push_back({SYS_write, 0, 0xffffffff, fd});
    allowed.push_back({SYS_writev, 0, 0xffffffff, fd});
  }
  // Others ask for signals, which may go to other processes.
  for (const uint32_t command : {F_GETFD, F_SETFD, F_GETFL, F_SETFL}) {
    allowed.push_back({SYS_fcntl, 1, 0xffffffff, command});
  }
  for (const long number : {
           SYS_brk,
           SYS_clock_getres,
           SYS_clock_gettime,
           SYS_clock_nanosleep,
           SYS_close,
           SYS_exit,
           SYS_exit_group,
           SYS_flock,
           SYS_fstat,
           SYS_fstatfs,
           SYS_futex,
           SYS_getdents64,
           SYS_getpid,
           SYS_getrandom,
           SYS_gettid,
           SYS_gettimeofday,
           SYS_lseek,
           SYS_madvise,
           SYS_mremap,
           SYS_munmap,
           SYS_nanosleep,
           SYS_newfstatat,
           SYS_ppoll,
           SYS_pread64,
           SYS_preadv,
           SYS_read,
           SYS_readv,
           SYS_restart_syscall,
           SYS_rseq,
           SYS_rt_sigaction,
           SYS_rt_sigprocmask,
           SYS_rt_sigreturn,
           SYS_sched_getaffinity,
           SYS_sched_getparam,
           SYS_sched_getscheduler,
           SYS_sched_yield,
           SYS_set_robust_list,
           SYS_sigaltstack,
           SYS_statx,
#ifdef SYS_open  // the older names, which newer architectures have not
           SYS_lstat,
           SYS_poll,
           SYS_stat,
           SYS_time,
#endif
       }) {
    allowed.push_back({.number = number});
  }
  return allowed;
}

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

sock_filter Load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter Return(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
// Goes on behind the next `otherwise` instructions where what was loaded is not `value`.
sock_filter IfEqual(uint32_t value, uint8_t otherwise) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise);
}

std::vector<sock_filter> MakeFilter() {
  std::vector<sock_filter> filter = {
      Load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      Return(SECCOMP_RET_KILL_PROCESS),
      Load(offsetof(seccomp_data, nr)),
  };
  // What these are to do stands in memory that a filter cannot see. The callers know the older ones, which are listed.
  for (const long number : {SYS_clone3, SYS_openat2}) {
    filter.push_back(IfEqual(static_cast<uint32_t>(number), 1));
    filter.push_back(Return(SECCOMP_RET_ERRNO | ENOSYS));
  }
  for (const Allowed& call : AllowedCalls()) {
    if (call.argument < 0) {
      filter.push_back(IfEqual(static_cast<uint32_t>(call.number), 1));
      filter.push_back(Return(SECCOMP_RET_ALLOW));
      continue;
    }
    filter.push_back(IfEqual(static_cast<uint32_t>(call.number), 5));
    filter.push_back(Load(offsetof(seccomp_data, args) + sizeof(uint64_t) * static_cast<size_t>(call.argument)));
    filter.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, call.mask));
    filter.push_back(IfEqual(call.value, 1));
    filter.push_back(Return(SECCOMP_RET_ALLOW));
    filter.push_back(Load(offsetof(seccomp_data, nr)));
  }
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kKnownCallMax, 0, 1));
  filter.push_back(Return(SECCOMP_RET_ERRNO | ENOSYS));
  filter.push_back(Return(SECCOMP_RET_ERRNO | EPERM));
  return filter;
}

// False where the kernel has no filters, or this is an architecture whose numbers nobody has looked at.
absl::StatusOr<bool> RestrictCalls(const std::string& path) {
  if (kArchitecture == 0) return false;
  std::vector<sock_filter> filter = MakeFilter();
  const sock_fprog program = {.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0) return true;
  const int error = errno;
  // The same errno says that there are no filters and that this one is wrong.
  const uint32_t action = SECCOMP_RET_ERRNO;
  const bool has_filters = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
  if (error == ENOSYS || (error == EINVAL && !has_filters)) return false;
  return ErrnoStatus(error, "install the system call filter, to inspect", path);
}

absl::Status DropRights(const std::string& path) {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, rights) != 0) return ErrnoStatus(errno, "ask for rights, to inspect", path);
  const uint32_t kept = uint32_t{1} << CAP_DAC_READ_SEARCH;
  for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; ++i) {
    rights[i].permitted &= i == CAP_TO_INDEX(CAP_DAC_READ_SEARCH) ? kept : 0;
    rights[i].effective = rights[i].permitted;
    rights[i].inheritable = 0;
  }
  if (syscall(SYS_capset, &header, rights) != 0) return ErrnoStatus(errno, "give up rights, to inspect", path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> EnterSandbox(const std::string& directory) {
  const UniqueFd fd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open directory", directory);
  if (absl::Status dropped = DropRights(directory); !dropped.ok()) return dropped;
  // Without it the kernel takes neither wall from who is not root.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return ErrnoStatus(errno, "give up new rights, to inspect", directory);
  const absl::StatusOr<bool> files = RestrictFiles(fd.get(), directory);
  if (!files.ok()) return files.status();
  const absl::StatusOr<bool> calls = RestrictCalls(directory);
  if (!calls.ok()) return calls.status();
  return DescribeLacking(*files, *calls, kArchitecture != 0);
}

std::string DescribeLacking(bool has_landlock, bool has_filter, bool knows_architecture) {
  if (has_landlock && has_filter) return "";
  std::string lacking = has_landlock ? "" : "this kernel has no Landlock";
  if (!has_filter && knows_architecture)
    lacking += has_landlock ? "this kernel has no seccomp filter" : " and no seccomp filter";
  if (!has_filter && !knows_architecture) {
    lacking += has_landlock ? "" : ", and ";
    lacking += "there is no seccomp filter for this architecture";
  }
  return fmt::format("{}, so the sandbox is {}", lacking, has_landlock || has_filter ? "weaker" : "missing");
}

}  // namespace tidemark::inspect
