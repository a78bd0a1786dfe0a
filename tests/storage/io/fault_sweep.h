// Every way in which one file-system call of a piece of work can fail: the Nth call, for each N, with each errno that
// such a call can give, once and from then on.

#ifndef TIDEMARK_TESTS_STORAGE_IO_FAULT_SWEEP_H_
#define TIDEMARK_TESTS_STORAGE_IO_FAULT_SWEEP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark::storage {

// What a call of that name (see FailingFileSystem::Call) can give on a local or a network file system. Nothing that
// says something about what is there: an ENOENT for a file that exists is no fault but a lie. Nothing either that
// PosixFileSystem() never lets out: EINTR and EAGAIN of transfers.
std::span<const int> ErrnosOf(std::string_view operation);

struct Fault {
  size_t call = 0;            // the first one that fails
  size_t error = 0;           // which of ErrnosOf its operation
  bool from_then_on = false;  // every later call fails too that can give the same errno
};

std::ostream& operator<<(std::ostream& out, const Fault& fault);

// A fault in a file system, until it is lifted. Thread-safe.
class InjectedFault {
 public:
  // Counts calls from here on. Replaces the file system's rule.
  InjectedFault(FailingFileSystem& files, const Fault& fault);

  // The disk is healthy again, and the rule is gone.
  void Lift();

  // What the first call that failed has answered; ok: none has.
  absl::Status first() const;

  // Whether `status` is that of a call that failed: its code, its errno and its path.
  bool Explains(const absl::Status& status) const;

  // Whether `status`, whatever its code, has the errno and the path of a call that failed in its message.
  bool IsNamedIn(const absl::Status& status) const;

 private:
  absl::Status Admit(const Fault& fault, const FailingFileSystem::Call& call);

  FailingFileSystem& files_;
  mutable absl::Mutex mutex_;
  int errno_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> paths_ ABSL_GUARDED_BY(mutex_);
};

// What is done under faults. Functions use gtest's assertions.
struct FaultScenario {
  std::string name;
  // All that is done on a healthy disk before.
  std::function<void()> prepare;
  // What the faults fall upon. Its status is what it reported, for the figures.
  std::function<absl::Status()> act;
  // On a healthy disk again: `status` as `act` returned it, and what was injected. Leaves nothing open.
  std::function<void(const absl::Status& status, const InjectedFault& fault)> check;
  // `act` makes its calls on one thread, and the same ones every time.
  bool one_thread = false;
};

struct FaultFigures {
  size_t sites = 0;     // calls that the work makes where nothing fails
  size_t faults = 0;    // sites x errnos
  size_t runs = 0;      // faults once and from then on, or as many of them as were drawn
  size_t fired = 0;     // runs in which a call met the fault; else there were fewer calls or others
  size_t reported = 0;  // runs in which the work reported a failure

  // Whether any did, as far as so few runs tell: of those that are drawn under a sanitizer all may be among the others.
  bool any_reported() const { return reported > 0 || runs < 50; }
};

// Runs the scenario once as it is, and then under every fault: prepare, act, check. Each run must leave as many file
// descriptors open as there were, lose no memory (leaks.h), and come to its end within two minutes, or the process ends
// with the fault's name.
// With `one_of` > 1 only one of so many faults is run, drawn by SeedOfCases(), which is shown, unless all cases are
// asked for; see drawn_cases.h. Prints the figures. All runs must meet their fault, or, where threads make the calls,
// all but a quarter and five.
FaultFigures SweepFaults(FailingFileSystem& files, const FaultScenario& scenario, size_t one_of = 1);

// `one_of` for the build at hand: sanitizers make each run many times slower.
constexpr size_t FaultsToRun(size_t one_of) { return one_of * (kThreadSanitizer ? 40 : kAddressSanitizer ? 15 : 1); }

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_FAULT_SWEEP_H_
