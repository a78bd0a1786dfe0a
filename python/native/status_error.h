// Statuses as exceptions of Python.

#ifndef TIDEMARK_PYTHON_NATIVE_STATUS_ERROR_H_
#define TIDEMARK_PYTHON_NATIVE_STATUS_ERROR_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark::python {

// Raises the exception of tidemark.errors that stands for the status. Precondition: not ok; the interpreter's lock is
// held.
[[noreturn]] void Raise(const absl::Status& status);

inline void RaiseUnlessOk(const absl::Status& status) {
  if (!status.ok()) Raise(status);
}

template <typename T>
T ValueOrRaise(absl::StatusOr<T> result) {
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_STATUS_ERROR_H_
