// Releasable: an object of the library that Python may destroy while calls of it run.

#ifndef TIDEMARK_PYTHON_NATIVE_RELEASABLE_H_
#define TIDEMARK_PYTHON_NATIVE_RELEASABLE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "python/native/interpreter_lock.h"
#include "python/native/status_error.h"

namespace tidemark::python {

// As thread-safe as T; every function may run beside Release. All of them are called with the interpreter's lock, which
// guards `object_`.
template <typename T>
class Releasable {
 public:
  // `what` is a noun for the message: "the checkpointer".
  explicit Releasable(const char* what) : what_(what) {}
  ~Releasable() { Release(); }
  Releasable(const Releasable&) = delete;
  Releasable& operator=(const Releasable&) = delete;

  void Set(std::unique_ptr<T> object) { object_ = std::move(object); }

  // Destroys the object, without the interpreter's lock: that may wait. If a call runs, the call does it at its end.
  void Release() {
    std::shared_ptr<T> last = std::move(object_);
    const Unlocked unlocked;
    last.reset();
  }

  // function(object), without the interpreter's lock. Raises FailedPreconditionError after Release.
  template <typename Function>
  auto Call(Function function) {
    std::shared_ptr<T> shared = object_;
    if (shared == nullptr) Raise(absl::FailedPreconditionError(std::string(what_) + " is closed"));
    const Unlocked unlocked;
    const std::shared_ptr<T> used = std::move(shared);  // so that the last one is dropped without the lock
    return function(*used);
  }

 private:
  const char* const what_;
  std::shared_ptr<T> object_;
};

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_RELEASABLE_H_
