// ExportSafetensors and BestFile for Python.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/native/bindings.h"
#include "python/native/event_queue.h"
#include "python/native/interpreter_lock.h"
#include "python/native/options_dict.h"
#include "python/native/releasable.h"
#include "python/native/snapshot_view.h"
#include "python/native/status_error.h"
#include "tidemark/best_file.h"
#include "tidemark/export.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

ExportOptions ExportOptionsOf(const nb::dict& options) {
  ExportOptions out{.entries = Option<std::vector<std::string>>(options, "entries"),
                    .renames = Option<Renames>(options, "renames"),
                    .replace = Option<bool>(options, "replace")};
  if (const auto dtype = Option<std::string>(options, "dtype"); !dtype.empty()) {
    const DtypeInfo* info = FindDtype(dtype);
    if (info == nullptr) Raise(absl::InvalidArgumentError("dtype is '" + dtype + "', which is no dtype"));
    out.dtype = info->dtype;
  }
  return out;
}

absl::StatusOr<int64_t> ExportStep(const std::string& directory, const StepSelector& step, const std::string& path,
                                   const ExportOptions& options) {
  absl::StatusOr<std::unique_ptr<StoreReader>> store = StoreReader::Open(directory);
  if (!store.ok()) return store.status();
  return ExportSafetensors(**store, step, path, options);
}

// The file and its warnings.
class BestFileHandle {
 public:
  explicit BestFileHandle(const nb::dict& options) : events_(std::make_shared<EventQueue>()) {
    BestFileOptions native{.store = Option<std::string>(options, "store"),
                           .metric = Option<std::string>(options, "metric"),
                           .mode = ModeOf(Option<std::string>(options, "mode")),
                           .path = Option<std::string>(options, "path"),
                           .contents = ExportOptionsOf(options),
                           .poll_interval = absl::Seconds(Option<double>(options, "poll_interval")),
                           .observer = events_};
    absl::StatusOr<std::unique_ptr<BestFile>> started;
    {
      const Unlocked unlocked;
      started = BestFile::Start(std::move(native));
    }
    file_.Set(ValueOrRaise(std::move(started)));
  }

  void Update() {
    RaiseUnlessOk(file_.Call([](BestFile& file) { return file.Update(); }));
  }
  void Release() { file_.Release(); }
  EventQueue& events() { return *events_; }

 private:
  const std::shared_ptr<EventQueue> events_;
  Releasable<BestFile> file_{"the best file"};
};

}  // namespace

void BindExchange(nb::module_& module) {
  module.def("export_step", [](const std::string& directory, const std::string& text, const std::string& path,
                               const nb::dict& options) {
    const StepSelector selector = ValueOrRaise(StepSelector::Parse(text));
    const ExportOptions native = ExportOptionsOf(options);
    absl::StatusOr<int64_t> step;
    {
      const Unlocked unlocked;
      step = ExportStep(directory, selector, path, native);
    }
    return ValueOrRaise(std::move(step));
  });
  module.def("export_snapshot", [](const SnapshotView& view, const std::string& path, const nb::dict& options) {
    const ExportOptions native = ExportOptionsOf(options);
    absl::Status status;
    {
      const Unlocked unlocked;
      status = ExportSafetensors(view, path, native);
    }
    RaiseUnlessOk(status);
  });
  nb::class_<BestFileHandle>(module, "BestFile")
      .def(nb::init<const nb::dict&>())
      .def("update", &BestFileHandle::Update)
      .def("release", &BestFileHandle::Release, "Waits for an export that is running, and ends the thread.")
      .def("wait_for_events",
           [](BestFileHandle& handle, double seconds) { return WaitForEvents(handle.events(), seconds); })
      .def("wake", [](BestFileHandle& handle) { handle.events().Wake(); });
}

}  // namespace tidemark::python
