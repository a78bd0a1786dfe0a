// The C++ library on the arrays of a process of Python: the other side of the rows of python/bench, without any of the
// package's code. Plain functions, for ctypes, which calls them without the interpreter's lock.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/state.h"

namespace tidemark::python_bench {
namespace {

using Clock = std::chrono::steady_clock;

std::string& LastError() {
  static auto* const error = new std::string;
  return *error;
}

// A checkpointer and one state. Thread-compatible, as is LastError.
struct Core {
  std::unique_ptr<AsyncCheckpointer> checkpointer;
  State state;
};

double Failed(const absl::Status& status) {
  LastError() = status.ToString();
  return -1;
}

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace
}  // namespace tidemark::python_bench

using tidemark::python_bench::Clock;
using tidemark::python_bench::Core;
using tidemark::python_bench::Failed;
using tidemark::python_bench::LastError;
using tidemark::python_bench::SecondsSince;

extern "C" {

// Of the last call that failed; valid until the next one.
const char* core_error() { return LastError().c_str(); }

// Opens a store, as the package does: null is a failure. `reuse`: whether a save refers to what an earlier one stored.
Core* core_open(const char* directory, bool reuse) {
  auto opened = tidemark::AsyncCheckpointer::Open({.directory = directory, .reuse = reuse});
  if (!opened.ok()) {
    Failed(opened.status());
    return nullptr;
  }
  auto* core = new Core;
  core->checkpointer = *std::move(opened);
  return core;
}

// Waits for its saves and releases the store.
void core_close(Core* core) { delete core; }

// Adds an array [elements] of fp32, which stays the caller's.
void core_add(Core* core, const char* name, int64_t elements, void* data) {
  core->state.AddTensor(name, tidemark::Dtype::kFloat32, {elements}, data);
}

// Saves the state as `step` and waits until that is committed. Returns how many seconds Save took; negative: it failed.
double core_save(Core* core, int64_t step) {
  const Clock::time_point begin = Clock::now();
  const auto save = core->checkpointer->Save(step, core->state);
  const double seconds = SecondsSince(begin);
  if (!save.ok()) return Failed(save.status());
  if (const absl::Status committed = save->committed().Wait(); !committed.ok()) return Failed(committed);
  return seconds;
}

// Fills the state from the latest step. Returns how many seconds that took; negative: it failed.
double core_restore(Core* core) {
  const Clock::time_point begin = Clock::now();
  const auto report = core->checkpointer->RestoreLatest(core->state);
  const double seconds = SecondsSince(begin);
  return report.ok() ? seconds : Failed(report.status());
}

}  // extern "C"
