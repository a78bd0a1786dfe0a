// The interpreter's lock, for threads that may outlive the interpreter.
//
// Up to Python 3.13 a thread that waits for the lock when the interpreter has ended is unwound by pthread_exit. On the
// way through frames of C++ that aborts the process, because a destructor or a noexcept function stops the unwinding.
// So whatever here waits for the lock, or calls Python, stands still instead until the process is gone.

#ifndef TIDEMARK_PYTHON_NATIVE_INTERPRETER_LOCK_H_
#define TIDEMARK_PYTHON_NATIVE_INTERPRETER_LOCK_H_

#include <cxxabi.h>

#include "nanobind/nanobind.h"

namespace tidemark::python {

// For the rest of the process.
[[noreturn]] void StandStill();

// Holds the lock released as long as it lives. Precondition: the thread has the lock. After RefuseCalls other threads
// than the one that called it stand still here.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

// Holds the lock as long as it lives, on any thread. After RefuseCalls it is false, and holds nothing.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  explicit operator bool() const { return held_; }

 private:
  bool held_ = false;
  PyGILState_STATE state_{};
};

// Called when the interpreter is about to end, with the lock held. Waits until no thread is on its way to the lock, and
// up to a second until none is in the library, whose static objects go with the process. Calls of Python that are going
// on stay, and stand still once the interpreter has ended.
void RefuseCalls();

// A reference to a Python object that any thread may drop. If the interpreter has ended, the object stays.
class SharedObject {
 public:
  // With the lock held.
  explicit SharedObject(nanobind::object object) : object_(object.release().ptr()) {}
  ~SharedObject() {
    const Locked locked;
    if (locked) Py_DECREF(object_);
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  nanobind::handle get() const { return object_; }

 private:
  PyObject* const object_;
};

// For threads that must not wait for the lock, because they may hold a mutex that a thread with the lock waits for:
// gives up a reference, which the main thread drops soon. If the interpreter has ended, the object stays.
void GiveUp(PyObject* object);

// Drops what was given up, with the lock held.
void DropGivenUp();

// function(arguments...) with the lock held; throws nanobind::python_error. Stands still if the interpreter ends
// meanwhile.
template <typename... Arguments>
nanobind::object CallPython(nanobind::handle function, const Arguments&... arguments) {
  PyObject* result = nullptr;
  try {
    result = PyObject_CallFunctionObjArgs(function.ptr(), arguments.ptr()..., nullptr);
  } catch (abi::__forced_unwind&) {
    StandStill();
  }
  if (result == nullptr) throw nanobind::python_error();
  return nanobind::steal(result);
}

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_INTERPRETER_LOCK_H_
