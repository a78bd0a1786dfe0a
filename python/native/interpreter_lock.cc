#include "python/native/interpreter_lock.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tidemark::python {
namespace {

// Threads with an Unlocked. Some of them may wait for long, for an event or a hanging disk.
std::atomic<int64_t> in_library = 0;

// Threads on their way to the lock, and what was given up by those that must not take it. Never destroyed: threads may
// outlive static objects. A fork waits for the mutex, so that it is free in the child.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t entering = 0;
  bool closed = false;
  std::vector<PyObject*> given_up;
};

Gate& TheGate();

Gate* NewGate() {
  const auto in_child = [] {
    // None of the threads that were on their way is there.
    TheGate().entering = 0;
    in_library = 0;
    TheGate().mutex.unlock();
  };
  pthread_atfork([] { TheGate().mutex.lock(); }, [] { TheGate().mutex.unlock(); }, in_child);
  return new Gate;
}

Gate& TheGate() {
  static Gate* const gate = NewGate();
  return *gate;
}

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
  gate.changed.wait(lock, [&] { return gate.entering == 0; });
  lock.unlock();
  const auto deadline = std::chrono::steady_clock::now() + kLeaveLibrary;
  while (in_library > 1 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void GiveUp(PyObject* object) {
  Gate& gate = TheGate();
  {
    const std::lock_guard lock(gate.mutex);
    gate.given_up.push_back(object);
  }
  // If the interpreter has ended, there is none to which a call could be added.
  if (Py_IsInitialized() == 0) return;
  // Needs no lock. Where its queue is full, the next DropGivenUp serves this object too.
  Py_AddPendingCall(
      [](void*) {
        DropGivenUp();
        return 0;
      },
      nullptr);
}

void DropGivenUp() {
  Gate& gate = TheGate();
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(gate.mutex);
    objects.swap(gate.given_up);
  }
  for (PyObject* const object : objects) Py_DECREF(object);
}

}  // namespace tidemark::python
