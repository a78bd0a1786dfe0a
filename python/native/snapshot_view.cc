#include "python/native/snapshot_view.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "nanobind/ndarray.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/tuple.h"
#include "nanobind/stl/vector.h"
#include "python/native/bindings.h"
#include "python/native/status_error.h"
#include "python/native/tree_state.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

absl::StatusOr<Verdict> VerdictOf(const nb::object& result) {
  auto [metrics, unhealthy, error] = nb::cast<std::tuple<Metrics, std::string, std::optional<std::string>>>(result);
  if (error) return absl::UnknownError(*error);
  return Verdict(std::move(metrics), std::move(unhealthy));
}

// Read-only, and an owner of the memory.
nb::object MemoryOf(const SnapshotView& view, size_t index) {
  const std::span<const std::byte> bytes = view.bytes.at(index);
  const nb::capsule owner(new std::shared_ptr<const void>(view.memory),
                          [](void* memory) noexcept { delete static_cast<std::shared_ptr<const void>*>(memory); });
  return nb::cast(nb::ndarray<nb::memview, const uint8_t, nb::ndim<1>>(bytes.data(), {bytes.size()}, owner));
}

absl::Status Fill(const SnapshotView& view, TreeState& state) {
  absl::flat_hash_map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < view.entries.size(); ++i) by_name.emplace(view.entries[i].name, i);
  for (size_t i = 0; i < state.entries().size(); ++i) {
    const auto found = by_name.find(state.entries()[i].spec.name);
    if (found == by_name.end()) continue;
    if (absl::Status status = state.Receive(i, view.bytes[found->second]); !status.ok()) return status;
  }
  return state.FinishRestore();
}

}  // namespace

SnapshotView::SnapshotView(const Snapshot& snapshot)
    : step(snapshot.step()),
      entries(snapshot.entries().begin(), snapshot.entries().end()),
      memory(snapshot.memory()),
      metrics(snapshot.metrics()),
      user_metadata(snapshot.user_metadata()) {
  bytes.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) bytes.push_back(snapshot.bytes(i));
}

EvaluatorFunction FunctionOf(nb::object function, std::function<void(nb::python_error)> on_raise) {
  return [function = std::make_shared<SharedObject>(std::move(function)),
          on_raise = std::move(on_raise)](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    SnapshotView view(snapshot);
    const Locked locked;
    if (!locked) return absl::CancelledError("the Python interpreter has ended");
    try {
      const nb::object argument = nb::cast(std::move(view));
      return VerdictOf(CallPython(function->get(), argument));
    } catch (nb::python_error& error) {
      if (on_raise == nullptr) return absl::UnknownError(error.what());
      on_raise(std::move(error));
      return absl::CancelledError("the function of Python raised");
    }
  };
}

void BindSnapshot(nb::module_& module) {
  nb::class_<SnapshotView>(module, "Snapshot")
      .def_ro("step", &SnapshotView::step)
      .def_ro("metrics", &SnapshotView::metrics)
      .def_ro("user_metadata", &SnapshotView::user_metadata)
      .def(
          "entries",
          [](const SnapshotView& view) {
            nb::list out;
            for (const EntrySpec& spec : view.entries) {
              out.append(nb::make_tuple(spec.name, std::string(EntryKindName(spec.kind)),
                                        std::string(GetDtypeInfo(spec.dtype).name), spec.held_shape()));
            }
            return out;
          },
          "[(name, kind, dtype, shape)]")
      .def("memory", &MemoryOf, "The bytes of an entry, read-only. Keeps the snapshot's memory.")
      .def(
          "prepare",
          [](const SnapshotView& view, TreeState& state) { RaiseUnlessOk(state.PrepareRestore(view.entries)); },
          "Compares the snapshot with the state's destinations; see TreeState.differences.")
      .def(
          "fill",
          [](const SnapshotView& view, TreeState& state) {
            absl::Status status;
            {
              const Unlocked unlocked;
              status = Fill(view, state);
            }
            RaiseUnlessOk(status);
          },
          "After prepare: copies what both have.");
  module.def(
      "refuse_calls",
      [](bool some_run) {
        // Threads that still run keep objects.
        if (some_run) nb::set_leak_warnings(false);
        RefuseCalls();
      },
      "No thread begins to call Python any more, because the interpreter is about to end.");
}

}  // namespace tidemark::python
