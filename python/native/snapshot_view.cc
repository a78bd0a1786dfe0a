#include "python/native/snapshot_view.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "nanobind/ndarray.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/tuple.h"
#include "nanobind/stl/vector.h"
#include "python/native/bindings.h"
#include "python/native/options_dict.h"
#include "python/native/status_error.h"
#include "python/native/tree_state.h"
#include "tidemark/capture.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

absl::StatusOr<Verdict> VerdictOf(const nb::object& result) {
  auto [metrics, unhealthy, error] = nb::cast<std::tuple<Metrics, std::string, std::optional<std::string>>>(result);
  if (error) return absl::UnknownError(*error);
  return Verdict(std::move(metrics), std::move(unhealthy));
}

// Read-only, and an owner of the memory.
nb::object MemoryOfEntry(const SnapshotView& view, size_t index) {
  const std::span<const std::byte> bytes = view.bytes(index);
  const nb::capsule owner(new std::shared_ptr<const void>(view.memory()),
                          [](void* memory) noexcept { delete static_cast<std::shared_ptr<const void>*>(memory); });
  return nb::cast(nb::ndarray<nb::memview, const uint8_t, nb::ndim<1>>(bytes.data(), {bytes.size()}, owner));
}

}  // namespace

SnapshotView::SnapshotView(const Snapshot& snapshot)
    : step_(snapshot.step()),
      entries_(snapshot.entries().begin(), snapshot.entries().end()),
      memory_(snapshot.memory()),
      metrics_(snapshot.metrics()),
      user_metadata_(snapshot.user_metadata()) {
  bytes_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    bytes_.push_back(snapshot.bytes(i));
    by_name_.emplace(entries_[i].name, i);
  }
}

std::optional<size_t> SnapshotView::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
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
      .def_prop_ro("step", &SnapshotView::step)
      .def_prop_ro("metrics", [](const SnapshotView& view) { return view.metrics(); })
      .def_prop_ro("user_metadata", [](const SnapshotView& view) { return view.user_metadata(); })
      .def(
          "entries",
          [](const SnapshotView& view) {
            nb::list out;
            for (const EntrySpec& spec : view.entries()) {
              out.append(nb::make_tuple(spec.name, std::string(EntryKindName(spec.kind)),
                                        std::string(GetDtypeInfo(spec.dtype).name), spec.held_shape()));
            }
            return out;
          },
          "[(name, kind, dtype, shape)]")
      .def("memory", &MemoryOfEntry, "The bytes of an entry, read-only. Keeps the snapshot's memory.")
      .def(
          "restore",
          [](const SnapshotView& view, TreeState& state, const nb::dict& options) {
            const RestoreOptions native{.only = Option<std::vector<std::string>>(options, "only"),
                                        .renames = Option<Renames>(options, "renames"),
                                        .allow_missing = Option<bool>(options, "allow_missing"),
                                        .allow_unexpected = true};
            absl::Status status;
            {
              const Unlocked unlocked;
              status = RestoreFrom(view, state, native);
            }
            RaiseUnlessOk(status);
          },
          "Fills the state's destinations; see TreeState.differences.");
  module.def(
      "capture",
      [](TreeState& state) {
        absl::StatusOr<std::shared_ptr<const Snapshot>> snapshot;
        {
          const Unlocked unlocked;
          snapshot = Capture(state);
        }
        return SnapshotView(*ValueOrRaise(std::move(snapshot)));
      },
      "Copies the state into memory of its own.");
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
