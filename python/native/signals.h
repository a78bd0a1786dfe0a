// Python's handlers of signals, in calls of the library that take long.

#ifndef TIDEMARK_PYTHON_NATIVE_SIGNALS_H_
#define TIDEMARK_PYTHON_NATIVE_SIGNALS_H_

#include <cxxabi.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <system_error>
#include <utility>

#include "nanobind/nanobind.h"
#include "python/native/interpreter_lock.h"

namespace tidemark::python {

// Of one call. Made and destroyed with the interpreter's lock held.
class Signals {
 public:
  // is_cancelled: None, or a function of Python which says that the call is to end without an exception.
  explicit Signals(nanobind::object is_cancelled = nanobind::none()) : is_cancelled_(std::move(is_cancelled)) {}

  // Whether the call is to end: `is_cancelled` says so or raises, or the handler of a signal that has come raises, such
  // as that of Ctrl-C. On the thread of the call, without the interpreter's lock. Python runs handlers on its main
  // thread alone.
  bool Check() {
    const Locked locked;
    if (!locked) return false;
    try {
      if (PyErr_CheckSignals() != 0) raised_.emplace();
      if (!raised_ && !is_cancelled_.is_none()) return nanobind::cast<bool>(is_cancelled_());
    } catch (nanobind::python_error& error) {
      raised_.emplace(std::move(error));
    } catch (abi::__forced_unwind&) {
      StandStill();
    }
    return raised_.has_value();
  }

  // Throws what a handler raised. With the interpreter's lock held, at the end of the call.
  void Raise() {
    if (raised_.has_value()) throw *std::exchange(raised_, std::nullopt);
  }

  // function(cancelled) on another thread, while this one looks for signals; `cancelled` is thread-safe. If the system
  // gives no thread, on this one, which then looks for no signals.
  template <typename Function>
  auto Await(Function function) {
    std::atomic<bool> cancelled = false;
    const auto call = [&] { return function([&] { return cancelled.load(); }); };
    std::future<decltype(call())> result;
    try {
      result = std::async(std::launch::async, call);
    } catch (const std::system_error&) {
      return call();
    }
    while (result.wait_for(kInterval) != std::future_status::ready) {
      if (Check()) cancelled = true;
    }
    return result.get();
  }

 private:
  static constexpr std::chrono::milliseconds kInterval{10};

  nanobind::object is_cancelled_;
  std::optional<nanobind::python_error> raised_;
};

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_SIGNALS_H_
