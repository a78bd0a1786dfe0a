#include "python/native/interpreter_lock.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>

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

}  // namespace

void StandStill() {
  for (;;) pause();
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
  const Unlocked unlocked;
  std::unique_lock lock(gate.mutex);
  gate.closed = true;
  // A forked child has none of the threads that were on their way.
  if (gate.process != getpid()) return;
  gate.changed.wait(lock, [&] { return gate.entering == 0; });
}

}  // namespace tidemark::python
