// SnapshotView: a snapshot as Python has it, which may outlive the call of an evaluator.

#ifndef TIDEMARK_PYTHON_NATIVE_SNAPSHOT_VIEW_H_
#define TIDEMARK_PYTHON_NATIVE_SNAPSHOT_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "python/native/interpreter_lock.h"
#include "tidemark/entry.h"
#include "tidemark/evaluator.h"
#include "tidemark/snapshot.h"

namespace tidemark::python {

// Shares the memory of the snapshot that it was made of, and so do the arrays that are made of it.
class SnapshotView final : public Snapshot {
 public:
  explicit SnapshotView(const Snapshot& snapshot);

  int64_t step() const override { return step_; }
  std::span<const EntrySpec> entries() const override { return entries_; }
  std::span<const std::byte> bytes(size_t index) const override { return bytes_.at(index); }
  std::shared_ptr<const void> memory() const override { return memory_; }
  std::optional<size_t> Find(std::string_view name) const override;
  const std::map<std::string, double>& metrics() const override { return metrics_; }
  const std::string& user_metadata() const override { return user_metadata_; }

 private:
  int64_t step_;
  std::vector<EntrySpec> entries_;
  std::vector<std::span<const std::byte>> bytes_;       // by entry
  std::map<std::string, size_t, std::less<>> by_name_;  // into entries_
  std::shared_ptr<const void> memory_;
  Metrics metrics_;
  std::string user_metadata_;
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
