#include "snapshot/process/termination_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fmt/format.h"

namespace tidemark {
namespace {

// What the handler reads and writes; nothing else is safe in one. Descriptors are made once and kept for the life of
// the process, for a handler may run at any time.
struct Noted {
  std::atomic<int64_t> came_ns{0};  // when it came, by CLOCK_MONOTONIC; 0: it has not
  std::atomic<int> event{-1};       // readable as soon as it has
  std::atomic<pid_t> process{0};    // whose signals are noted
  struct sigaction former = {};     // written before the handler is installed
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

constexpr int kSignals = 65;  // Linux has 1 to 64
std::array<Noted, kSignals> noted;

absl::Mutex users_mutex(absl::kConstInit);
std::array<int, kSignals> users ABSL_GUARDED_BY(users_mutex);

void NoteSignal(int signal) {
  const int saved_errno = errno;
  Noted& note = noted[static_cast<size_t>(signal)];
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t never = 0;
  const bool first =
      note.process == getpid() && note.came_ns.compare_exchange_strong(never, now.tv_sec * 1'000'000'000 + now.tv_nsec);
  if (first) {
    const uint64_t one = 1;
    // Its counter cannot be full: once is all that is ever written.
    [[maybe_unused]] const ssize_t written = write(note.event, &one, sizeof(one));
  } else {
    // Comes again as soon as this handler returns.
    sigaction(signal, &note.former, nullptr);
    raise(signal);
  }
  errno = saved_errno;
}

absl::Status StartNoting(int signal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(users_mutex) {
  Noted& note = noted[static_cast<size_t>(signal)];
  if (note.event < 0) {
    note.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (note.event < 0) return absl::ResourceExhaustedError(fmt::format("eventfd: {}", strerror(errno)));
  }
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t read_bytes = read(note.event, &count, sizeof(count));  // of an earlier installation
  note.came_ns = 0;
  note.process = getpid();
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  action.sa_flags = SA_RESTART;
  if (sigaction(signal, nullptr, &note.former) != 0 || sigaction(signal, &action, nullptr) != 0) {
    return absl::InvalidArgumentError(fmt::format("signal {} cannot be caught: {}", signal, strerror(errno)));
  }
  return absl::OkStatus();
}

void StopNoting(int signal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(users_mutex) {
  struct sigaction current = {};
  sigaction(signal, nullptr, &current);
  if (current.sa_handler == NoteSignal) sigaction(signal, &noted[static_cast<size_t>(signal)].former, nullptr);
}

}  // namespace

TerminationSignal::TerminationSignal(std::vector<int> signals) : signals_(std::move(signals)) {}

absl::StatusOr<std::unique_ptr<TerminationSignal>> TerminationSignal::Install(std::vector<int> signals) {
  std::sort(signals.begin(), signals.end());
  signals.erase(std::unique(signals.begin(), signals.end()), signals.end());
  for (int signal : signals) {
    if (signal < 1 || signal >= kSignals) {
      return absl::InvalidArgumentError(fmt::format("there is no signal {}: 1 to {}", signal, kSignals - 1));
    }
  }
  std::vector<int> installed;
  absl::Status status;
  {
    absl::MutexLock lock(&users_mutex);
    for (int signal : signals) {
      int& count = users[static_cast<size_t>(signal)];
      if (count == 0) status = StartNoting(signal);
      if (!status.ok()) break;
      ++count;
      installed.push_back(signal);
    }
  }
  std::unique_ptr<TerminationSignal> noting(new TerminationSignal(std::move(installed)));
  if (!status.ok()) return status;
  return noting;
}

TerminationSignal::~TerminationSignal() {
  absl::MutexLock lock(&users_mutex);
  for (int signal : signals_) {
    if (--users[static_cast<size_t>(signal)] == 0) StopNoting(signal);
  }
}

bool TerminationSignal::received() const {
  return std::any_of(signals_.begin(), signals_.end(),
                     [](int signal) { return noted[static_cast<size_t>(signal)].came_ns != 0; });
}

std::optional<absl::Time> TerminationSignal::received_at() const {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (int signal : signals_) {
    if (const int64_t at = noted[static_cast<size_t>(signal)].came_ns; at != 0) first = std::min(first, at);
  }
  if (first == std::numeric_limits<int64_t>::max()) return std::nullopt;
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::Now() - (absl::DurationFromTimespec(now) - absl::Nanoseconds(first));
}

bool TerminationSignal::WaitFor(absl::Duration duration) const {
  std::vector<pollfd> events;
  for (int signal : signals_) {
    events.push_back({.fd = noted[static_cast<size_t>(signal)].event, .events = POLLIN, .revents = 0});
  }
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const absl::Duration deadline = absl::DurationFromTimespec(now) + duration;
  while (!received()) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    const absl::Duration left = deadline - absl::DurationFromTimespec(now);
    if (left <= absl::ZeroDuration()) break;
    // A signal that another handler takes ends the call early, and the loop goes on.
    const timespec timeout = absl::ToTimespec(left);
    ppoll(events.data(), events.size(), left == absl::InfiniteDuration() ? nullptr : &timeout, nullptr);
  }
  return received();
}

}  // namespace tidemark
