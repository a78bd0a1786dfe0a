#include "python/native/interpreter_lock.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace tidemark::python {
namespace {

// Threads on their way to the lock. Never destroyed: threads may outlive static objects.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t entering = 0;
  bool closed = false;
  const pid_t process = getpid();
};

Gate& TheGate() {
  static Gate* const gate = new Gate;
  return *gate;
}

// Threads with an Unlocked. Some of them may wait for long, for an event or a hanging disk.
std::atomic<int64_t> in_library = 0;
std::atomic<bool> ending = false;
std::atomic<std::thread::id> ending_thread;
constexpr std::chrono::milliseconds kLeaveLibrary{1000};

}  // namespace

void StandStill() {
  for (;;) pause();
}

Unlocked::Unlocked() : state_(PyEval_SaveThread()) {
  ++in_library;
  if (ending && ending_thread.load() != std::this_thread::get_id()) {
    --in_library;
    StandStill();
  }
}

Unlocked::~Unlocked() {
  --in_library;
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) {
    StandStill();
  }
}

Locked::Locked() {
  Gate& gate = TheGate();
  {
    const std::lock_guard lock(gate.mutex);
    if (gate.closed) return;
    ++gate.entering;
  }
  try {
    state_ = PyGILState_Ensure();
  } catch (abi::__forced_unwind&) {
    StandStill();
  }
  held_ = true;
  const std::lock_guard lock(gate.mutex);
  --gate.entering;
  gate.changed.notify_all();
}

Locked::~Locked() {
  if (held_) PyGILState_Release(state_);
}

void RefuseCalls() {
  Gate& gate = TheGate();
  ending_thread = std::this_thread::get_id();
  ending = true;
  const Unlocked unlocked;
  std::unique_lock lock(gate.mutex);
  gate.closed = true;
  // A forked child has none of the threads that were on their way.
  if (gate.process != getpid()) return;
  gate.changed.wait(lock, [&] { return gate.entering == 0; });
  lock.unlock();
  const auto deadline = std::chrono::steady_clock::now() + kLeaveLibrary;
  while (in_library > 1 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace tidemark::python
