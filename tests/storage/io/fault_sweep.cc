#include "tests/storage/io/fault_sweep.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "storage/io/errno_status.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/leaks.h"

namespace tidemark::storage {
namespace {

constexpr unsigned kRunSecondsMax = 120;

// By what a call does. ESTALE and ETIMEDOUT are a file server's.
const std::vector<int> kOpening = {EIO, EACCES, EMFILE, ENFILE, ENOMEM, ESTALE, ETIMEDOUT};
const std::vector<int> kMaking = {EIO, ENOSPC, EDQUOT, EACCES, EROFS, EMFILE, ENOMEM, ESTALE, ETIMEDOUT};
const std::vector<int> kNaming = {EIO, ENOSPC, EDQUOT, EACCES, EPERM, EROFS, ENOMEM, EBUSY, ESTALE, ETIMEDOUT};
const std::vector<int> kLooking = {EIO, EACCES, ENOMEM, ESTALE, ETIMEDOUT};
const std::vector<int> kReading = {EIO, ENOMEM, ESTALE, ETIMEDOUT};
const std::vector<int> kWriting = {EIO, ENOSPC, EDQUOT, EFBIG, ENOMEM, ESTALE, ETIMEDOUT};
const std::vector<int> kSyncing = {EIO, ENOSPC, EDQUOT, EINTR, ESTALE, ETIMEDOUT};

const std::map<std::string_view, std::vector<int>> kErrnos = {
    {"CreateDirectory", kNaming},
    {"ListDirectory", kOpening},
    {"TypeOf", kLooking},
    {"Identify", kLooking},
    {"OpenForRead", kOpening},
    {"OpenForRewrite", kOpening},
    {"Create", kMaking},
    {"CreateReadable", kMaking},
    {"Rename", kNaming},
    {"RenameToNew", kNaming},
    {"HardLink", {EIO, ENOSPC, EDQUOT, EMLINK, EPERM, EOPNOTSUPP, EROFS, ENOMEM, ESTALE, ETIMEDOUT}},
    {"RemoveFile", kNaming},
    {"RemoveDirectory", kNaming},
    {"SyncDirectory", {EIO, ENOSPC, EDQUOT, EINTR, EACCES, EMFILE, ESTALE, ETIMEDOUT}},
    {"OpenDirectory", kOpening},
    {"TryLock", {EIO, ENOSPC, EACCES, EROFS, EMFILE, ENOLCK, ENOMEM, ESTALE, ETIMEDOUT}},
    {"ReadNote", kOpening},
    {"WriteNote", kWriting},
    {"NewIoQueue", {EMFILE, ENFILE, ENOMEM}},
    {"Size", {EIO, ENOMEM, ESTALE, ETIMEDOUT}},
    {"ReadAt", kReading},
    {"WriteAt", kWriting},
    {"QueueRead", {EIO, ENOMEM, ESTALE, ETIMEDOUT, ECANCELED}},
    {"QueueWrite", {EIO, ENOSPC, EDQUOT, EFBIG, ENOMEM, ESTALE, ETIMEDOUT, ECANCELED}},
    {"Allocate", {EIO, ENOSPC, EDQUOT, EFBIG, EOPNOTSUPP, ESTALE}},
    {"Truncate", {EIO, ENOSPC, EFBIG, EPERM, ESTALE, ETIMEDOUT}},
    {"SyncData", kSyncing},
    {"Close", {EIO, ENOSPC, EDQUOT, ESTALE}},
};

// Ends the process, and says where, if nobody takes it back in time. One at a time.
class HangWatch {
 public:
  explicit HangWatch(const std::string& where) {
    std::strncpy(where_, (where + " has not come to its end\n").c_str(), sizeof(where_) - 1);
    std::signal(SIGALRM, [](int) {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, where_, std::strlen(where_));
      std::abort();
    });
    alarm(kRunSecondsMax);
  }
  ~HangWatch() { alarm(0); }
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;

 private:
  static inline char where_[512];
};

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

struct Run {
  std::vector<FailingFileSystem::Call> calls;  // that `act` made
  bool fired = false;                          // whether a call met the fault
  bool reported = false;                       // whether `act` reported a failure
};

// One run; no call has the index ~0, so that is one as it is.
Run RunOnce(FailingFileSystem& files, const FaultScenario& scenario, const Fault& fault) {
  const HangWatch watch(fmt::format("{}, {}", scenario.name, testing::PrintToString(fault)));
  files.Reset();
  scenario.prepare();
  if (testing::Test::HasFatalFailure()) return {};
  files.Reset();
  InjectedFault injected(files, fault);
  const absl::Status status = scenario.act();
  Run run{.calls = files.calls(), .fired = !injected.first().ok(), .reported = !status.ok()};
  injected.Lift();
  SCOPED_TRACE(fmt::format("{}: {}; reported: {}", scenario.name, injected.first().ToString(), status.ToString()));
  scenario.check(status, injected);
  return run;
}

}  // namespace

std::span<const int> ErrnosOf(std::string_view operation) {
  const auto found = kErrnos.find(operation);
  return found == kErrnos.end() ? std::span<const int>() : found->second;
}

std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  return out << "call " << fault.call << ", errno " << fault.error << (fault.from_then_on ? " from then on" : " once");
}

InjectedFault::InjectedFault(FailingFileSystem& files, const Fault& fault) : files_(files) {
  files_.SetRule([this, fault](const FailingFileSystem::Call& call) { return Admit(fault, call); });
}

absl::Status InjectedFault::Admit(const Fault& fault, const FailingFileSystem::Call& call) {
  const std::span<const int> errnos = ErrnosOf(call.operation);
  if (call.index < fault.call || errnos.empty()) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  if (call.index == fault.call) {
    errno_ = errnos[fault.error % errnos.size()];
  } else {
    const bool can_give_it = std::find(errnos.begin(), errnos.end(), errno_) != errnos.end();
    if (!fault.from_then_on || !can_give_it) return absl::OkStatus();
  }
  // Of a queue there is no path; its errors are the kernel's.
  const std::string path = call.path.empty() ? "io_uring" : call.path;
  absl::Status status = ErrnoStatus(errno_, call.operation, path);
  first_.Update(status);
  paths_.push_back(path);
  return status;
}

void InjectedFault::Lift() { files_.SetRule(nullptr); }

absl::Status InjectedFault::first() const {
  absl::MutexLock lock(&mutex_);
  return first_;
}

bool InjectedFault::Explains(const absl::Status& status) const {
  return status.code() == first().code() && IsNamedIn(status);
}

bool InjectedFault::IsNamedIn(const absl::Status& status) const {
  absl::MutexLock lock(&mutex_);
  const std::string_view message = {status.message().data(), status.message().size()};
  if (message.find(fmt::format("({})", strerrorname_np(errno_))) == std::string_view::npos) return false;
  return std::any_of(paths_.begin(), paths_.end(),
                     [&](const std::string& path) { return message.find(path) != std::string_view::npos; });
}

FaultFigures SweepFaults(FailingFileSystem& files, const FaultScenario& scenario, size_t one_of) {
  FaultFigures figures;
  const absl::Time begin = absl::Now();
  const auto seed = SeedOfCases();
  if (AllCasesAsked()) one_of = 1;
  std::mt19937 draw(seed);
  constexpr size_t kNever = ~size_t{0};
  const auto [calls, fired, reported] = RunOnce(files, scenario, {.call = kNever});
  EXPECT_FALSE(fired || reported) << scenario.name << " fails by itself";
  figures.sites = calls.size();
  const size_t descriptors = OpenDescriptors();
  for (size_t call = 0; call < calls.size(); ++call) {
    const size_t errnos = ErrnosOf(calls[call].operation).size();
    figures.faults += errnos;
    for (size_t error = 0; error < errnos; ++error) {
      for (const bool from_then_on : {false, true}) {
        if (one_of > 1 && draw() % one_of != 0) continue;
        const Fault fault{.call = call, .error = error, .from_then_on = from_then_on};
        SCOPED_TRACE(fmt::format("{} ({} {}), seed {}", testing::PrintToString(fault), calls[call].operation,
                                 calls[call].path, seed));
        const Run run = RunOnce(files, scenario, fault);
        ++figures.runs;
        figures.fired += run.fired ? 1 : 0;
        figures.reported += run.reported ? 1 : 0;
        EXPECT_EQ(OpenDescriptors(), descriptors);
        EXPECT_FALSE(HasLeaks());
        if (testing::Test::HasFailure()) return figures;
      }
    }
  }
  const std::string line = fmt::format(
      "{}: {} sites, {} sites x errnos, {} runs, {} of them met their fault, {} reported a failure, {:.1f} s",
      scenario.name, figures.sites, figures.faults, figures.runs, figures.fired, figures.reported,
      absl::ToDoubleSeconds(absl::Now() - begin));
  // Where several threads make the calls, their order and number are not the same in every run.
  const size_t missed_max = scenario.one_thread ? 0 : figures.runs / 4 + 5;
  EXPECT_GE(figures.fired + missed_max, figures.runs) << scenario.name << ": too many runs without their fault";
  testing::Test::RecordProperty(scenario.name, line);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return figures;
}

}  // namespace tidemark::storage
