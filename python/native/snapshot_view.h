// SnapshotView: a snapshot as Python has it, which may outlive the call of an evaluator.

#ifndef TIDEMARK_PYTHON_NATIVE_SNAPSHOT_VIEW_H_
#define TIDEMARK_PYTHON_NATIVE_SNAPSHOT_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "python/native/interpreter_lock.h"
#include "tidemark/entry.h"
#include "tidemark/evaluator.h"
#include "tidemark/snapshot.h"

namespace tidemark::python {

// Immutable. Shares the snapshot's memory, and so do the arrays that are made of it.
struct SnapshotView {
  explicit SnapshotView(const Snapshot& snapshot);

  int64_t step;
  std::vector<EntrySpec> entries;
  std::vector<std::span<const std::byte>> bytes;  // by entry
  std::shared_ptr<const void> memory;
  Metrics metrics;
  std::string user_metadata;
};

// Calls the function of Python with a SnapshotView. It returns (metrics, unhealthy, error): the error is None, or text
// that becomes kUnknown. Takes the interpreter's lock only for the call.
//
// What the function raises is an error of the verdict if `on_raise` is null. Else `on_raise` is given it, with the lock
// held, and the verdict is kCancelled.
EvaluatorFunction FunctionOf(nanobind::object function, std::function<void(nanobind::python_error)> on_raise = nullptr);

void BindSnapshot(nanobind::module_& module);

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_SNAPSHOT_VIEW_H_
