// FollowStore for Python.

#include "tidemark/worker.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "python/native/bindings.h"
#include "python/native/evaluator_options.h"
#include "python/native/interpreter_lock.h"
#include "python/native/snapshot_view.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

// The first thing that a function of Python raised, for the end of the call. Used with the interpreter's lock held.
struct Raised {
  void Note(nb::python_error error) {
    if (first == nullptr) first = std::make_exception_ptr(std::move(error));
  }
  std::exception_ptr first;
};

// Hands warnings and evaluations to functions of Python, on the thread of FollowStore.
class PythonObserver final : public CheckpointObserver {
 public:
  PythonObserver(nb::object warn, nb::object evaluated, std::shared_ptr<Raised> raised)
      : warn_(std::move(warn)), evaluated_(std::move(evaluated)), raised_(std::move(raised)) {}

  void Warning(std::string_view line) override {
    const Locked locked;
    if (!locked) return;
    Call([&] { CallPython(warn_.get(), nb::cast(std::string(line))); });
  }

  void Evaluated(int64_t step, const Evaluation& evaluation) override {
    const Locked locked;
    if (!locked || evaluated_.get().is_none()) return;
    Call([&] { CallPython(evaluated_.get(), nb::cast(step), nb::object(DictOf(evaluation))); });
  }

 private:
  template <typename Function>
  void Call(Function function) {
    try {
      function();
    } catch (nb::python_error& error) {
      raised_->Note(std::move(error));
    }
  }

  const SharedObject warn_;
  const SharedObject evaluated_;
  const std::shared_ptr<Raised> raised_;
};

std::string EndName(WorkerReport::End end) {
  if (end == WorkerReport::End::kUntilStep) return "until_step";
  if (end == WorkerReport::End::kIdle) return "idle";
  return end == WorkerReport::End::kSignal ? "signal" : "stopped";
}

// Ends the call, with what a function of Python raised, between two steps at the latest.
bool MustStop(const SharedObject& stop, Raised& raised) {
  const Locked locked;
  if (!locked || raised.first != nullptr) return true;
  try {
    return nb::cast<bool>(CallPython(stop.get()));
  } catch (nb::python_error& error) {
    raised.Note(std::move(error));
    return true;
  }
}

nb::dict Follow(const nb::dict& options, nb::object function, nb::object stop, nb::object warn, nb::object evaluated) {
  const auto raised = std::make_shared<Raised>();
  const auto asked = std::make_shared<SharedObject>(std::move(stop));
  WorkerOptions native{.directory = Option<std::string>(options, "directory"),
                       .evaluator = Option<std::string>(options, "evaluator"),
                       .worker = Option<std::string>(options, "worker"),
                       .when_lagging = WhenLaggingOf(Option<std::string>(options, "when_lagging")),
                       .staleness_max = Option<int64_t>(options, "staleness_max"),
                       .report = Option<bool>(options, "report"),
                       .entries = Option<std::vector<std::string>>(options, "entries"),
                       .half_precision = HalfPrecisionOf(Option<std::string>(options, "half_precision")),
                       .every_steps = Option<int64_t>(options, "every_steps"),
                       .begin_step = Option<int64_t>(options, "begin_step"),
                       .again_if_failed = Option<bool>(options, "again_if_failed"),
                       .until_step = Option<std::optional<int64_t>>(options, "until_step"),
                       .idle_timeout = absl::Seconds(Option<double>(options, "idle_timeout")),
                       .poll_interval = absl::Seconds(Option<double>(options, "poll_interval")),
                       .lease_expiry = absl::Seconds(Option<double>(options, "lease_expiry")),
                       .stop_on_signal = Option<bool>(options, "stop_on_signal"),
                       .stop = [asked, raised] { return MustStop(*asked, *raised); },
                       .observer = std::make_shared<PythonObserver>(std::move(warn), std::move(evaluated), raised)};
  EvaluatorFunction called =
      FunctionOf(std::move(function), [raised](nb::python_error error) { raised->Note(std::move(error)); });
  absl::StatusOr<WorkerReport> report;
  {
    const Unlocked unlocked;
    report = FollowStore(native, called);
  }
  if (raised->first != nullptr) std::rethrow_exception(std::exchange(raised->first, nullptr));
  RaiseUnlessOk(report.status());
  nb::dict out;
  out["end"] = EndName(report->end);
  out["evaluated"] = report->evaluated;
  out["failed"] = report->failed;
  out["skipped"] = report->skipped;
  out["last_step"] = report->last_step;
  return out;
}

}  // namespace

void BindWorker(nb::module_& module) {
  module.def("follow", &Follow, nb::arg("options"), nb::arg("function"), nb::arg("stop"), nb::arg("warn"),
             nb::arg("evaluated").none());
}

}  // namespace tidemark::python
