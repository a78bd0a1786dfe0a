// HealthMonitor for Python.

#include "tidemark/health_monitor.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/native/bindings.h"
#include "python/native/interpreter_lock.h"
#include "python/native/options_dict.h"
#include "python/native/python_functions.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

// Python takes it over.
HealthMonitor* NewHealthMonitor(const nb::dict& options) {
  absl::StatusOr<std::unique_ptr<HealthMonitor>> monitor =
      HealthMonitor::Create({.name = Option<std::string>(options, "name"),
                             .entries = Option<std::vector<std::string>>(options, "entries"),
                             .norm_jump_max = Option<double>(options, "norm_jump_max"),
                             .per_entry = Option<std::vector<std::string>>(options, "per_entry"),
                             .loss_metric = Option<std::string>(options, "loss_metric"),
                             .loss_deviations_max = Option<double>(options, "loss_deviations_max"),
                             .loss_window = Option<int64_t>(options, "loss_window"),
                             .loss_variance_jump_max = Option<double>(options, "loss_variance_jump_max"),
                             .gradient_norm_metric = Option<std::string>(options, "gradient_norm_metric"),
                             .on_divergence = DivergenceFunctionOf(options["on_divergence"])});
  return ValueOrRaise(std::move(monitor)).release();
}

}  // namespace

void BindHealthMonitor(nb::module_& module) {
  nb::class_<HealthMonitor>(module, "HealthMonitor")
      .def(nb::new_(&NewHealthMonitor))
      .def(
          "take_divergence",
          [](HealthMonitor& monitor) -> nb::object {
            std::optional<Divergence> found;
            {
              const Unlocked unlocked;
              found = monitor.TakeDivergence();
            }
            if (!found) return nb::none();
            return TupleOf(*found);
          },
          "(step, reason, remediation), or None")
      .def("reset", [](HealthMonitor& monitor) {
        const Unlocked unlocked;
        monitor.Reset();
      });
}

}  // namespace tidemark::python
