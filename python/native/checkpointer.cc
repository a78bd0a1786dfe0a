// AsyncCheckpointer and Future for Python. Every call that may block releases the interpreter's lock.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/tuple.h"
#include "nanobind/stl/vector.h"
#include "python/native/bindings.h"
#include "python/native/checkpointer_options.h"
#include "python/native/evaluator_options.h"
#include "python/native/event_queue.h"
#include "python/native/interpreter_lock.h"
#include "python/native/options_dict.h"
#include "python/native/python_functions.h"
#include "python/native/releasable.h"
#include "python/native/signals.h"
#include "python/native/snapshot_view.h"
#include "python/native/status_error.h"
#include "python/native/tree_state.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"
#include "tidemark/health_monitor.h"
#include "tidemark/preemption_guard.h"
#include "tidemark/replicas.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: arguments' names

namespace tidemark::python {
namespace {

std::string StagingName(Staging staging) {
  switch (staging) {
    case Staging::kBlocking:
      return "blocking";
    case Staging::kOverlapped:
      return "overlapped";
    case Staging::kOnDevice:
      return "on_device";
  }
  return "";
}

// The state of a rank whose Python could not read it: a save and a restore of it fail, and the other ranks are told
// why.
class UnreadableState final : public State {
 public:
  void set_why(const std::string& why) { why_ = absl::InvalidArgumentError(why); }
  absl::Status Refresh() override { return why_; }
  absl::Status PrepareRestore(std::span<const EntrySpec>) override { return why_; }

 private:
  absl::Status why_;
};

// The checkpointer and its events.
class Handle {
 public:
  explicit Handle(const nb::dict& options) : events_(std::make_shared<EventQueue>()) {
    CheckpointerOptions native = OptionsOf(options, events_);
    absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> opened;
    {
      const Unlocked unlocked;
      opened = AsyncCheckpointer::Open(std::move(native));
    }
    checkpointer_.Set(ValueOrRaise(std::move(opened)));
  }

  // Runs without the interpreter's lock.
  template <typename Function>
  auto Call(Function function) {
    return checkpointer_.Call(std::move(function));
  }

  void Release() { checkpointer_.Release(); }
  EventQueue& events() { return *events_; }

  // Saves and restores that the library was asked for. With the interpreter's lock held.
  void NoteBegun() { ++begun_; }
  int64_t begun() const { return begun_; }

  UnreadableState& Unreadable(const std::string& why) {
    unreadable_.set_why(why);
    return unreadable_;
  }

  // What Python must not lose to a KeyboardInterrupt, which may come as soon as a call returns. With the interpreter's
  // lock held.
  void NoteSave(const Future& committed) {
    std::erase_if(committing_, [](const Future& future) { return future.ready(); });
    committing_.push_back(committed);
  }
  bool all_committed() const {
    return std::all_of(committing_.begin(), committing_.end(), [](const Future& future) { return future.ready(); });
  }
  void NoteFailure(const absl::Status& status) {
    failures_.emplace_back(static_cast<int>(status.code()), status.message());
  }
  const std::vector<std::pair<int, std::string>>& failures() const { return failures_; }

 private:
  int64_t begun_ = 0;
  UnreadableState unreadable_;
  std::vector<Future> committing_;
  std::vector<std::pair<int, std::string>> failures_;
  const std::shared_ptr<EventQueue> events_;
  Releasable<AsyncCheckpointer> checkpointer_{"the checkpointer"};
};

nb::dict ReportDict(const RestoreReport& report) {
  nb::dict out;
  out["step"] = report.step;
  out["info"] = DictOf(report.info);
  out["passed_over"] = report.passed_over;
  out["missing"] = report.missing;
  out["unexpected"] = report.unexpected;
  out["bytes"] = report.bytes;
  return out;
}

nb::object InfoOrRaise(const absl::StatusOr<StepInfo>& info) {
  RaiseUnlessOk(info.status());
  return DictOf(*info);
}

}  // namespace

void BindCheckpointer(nb::module_& module) {
  const auto compare = [](State& state, const nb::object& ranks) {
    const RankOptions options = RankOptionsOf(ranks);
    absl::Status status;
    {
      const Unlocked unlocked;
      status = CompareReplicas(state, options);
    }
    RaiseUnlessOk(status);
  };
  module.def("compare_replicas", [compare](TreeState& state, const nb::object& ranks) { compare(state, ranks); });
  module.def("refuse_to_compare", [compare](const std::string& why, const nb::object& ranks) {
    UnreadableState state;
    state.set_why(why);
    compare(state, ranks);
  });

  nb::class_<Future>(module, "Future")
      .def("ready", &Future::ready)
      .def(
          "wait",
          [](const Future& future, double seconds) {
            // ready() first: a deadline that passed is no result.
            absl::Status status;
            {
              const Unlocked unlocked;
              status = future.WaitUntil(absl::Now() + absl::Seconds(seconds));
            }
            // In a forked child a result that did not come before the fork is an error at once, and never ready.
            if (!future.ready() && absl::IsDeadlineExceeded(status)) return false;
            RaiseUnlessOk(status.code() == absl::StatusCode::kDeadlineExceeded ? future.Wait() : status);
            return true;
          },
          "seconds"_a, "Whether the result has arrived; raises the failure, which then counts as seen.");

  nb::class_<SaveHandle>(module, "SaveHandle")
      .def_prop_ro("step", &SaveHandle::step)
      .def_prop_ro("skipped", &SaveHandle::skipped)
      .def_prop_ro("staging", [](const SaveHandle& handle) { return StagingName(handle.staging()); })
      .def_prop_ro("staged", [](const SaveHandle& handle) { return Future(handle.staged()); })
      .def_prop_ro("committed", [](const SaveHandle& handle) { return Future(handle.committed()); });

  nb::class_<Handle>(module, "Checkpointer")
      .def(nb::init<const nb::dict&>())
      .def("should_save",
           [](Handle& handle, int64_t step) { return handle.Call([&](auto& c) { return c.ShouldSave(step); }); })
      .def(
          "save",
          [](Handle& handle, int64_t step, TreeState& state, Metrics metrics, std::string user_metadata, bool overwrite,
             const std::optional<std::string>& staging, nb::object is_cancelled) {
            SaveOptions options{
                .metrics = std::move(metrics), .user_metadata = std::move(user_metadata), .overwrite = overwrite};
            if (staging.has_value()) options.staging = StagingOf(*staging);
            Signals signals(std::move(is_cancelled));
            options.cancelled = [&] { return signals.Check(); };
            handle.NoteBegun();
            absl::StatusOr<SaveHandle> save = handle.Call([&](auto& c) { return c.Save(step, state, options); });
            if (save.ok()) handle.NoteSave(save->committed());
            signals.Raise();
            return ValueOrRaise(std::move(save));
          },
          "step"_a, "state"_a, "metrics"_a, "user_metadata"_a, "overwrite"_a, "staging"_a.none(),
          "is_cancelled"_a.none())
      .def_prop_ro("begun", &Handle::begun)
      .def(
          "refuse_save",
          [](Handle& handle, int64_t step, const std::string& why) {
            UnreadableState& state = handle.Unreadable(why);
            handle.Call([&](auto& c) { return c.Save(step, state, {.overwrite = true}).status(); }).IgnoreError();
          },
          "In a job of several ranks: this one cannot save the step, and the others need not wait for it.")
      .def(
          "refuse_restore",
          [](Handle& handle, bool resumes, const std::string& why) {
            UnreadableState& state = handle.Unreadable(why);
            handle.Call([&](auto& c) { return resumes ? c.Resume(state).status() : c.RestoreLatest(state).status(); })
                .IgnoreError();
          },
          "The same of a restore, which the other ranks begin or have begun.")
      .def(
          "evaluate",
          [](Handle& handle, int64_t step, TreeState& state, Metrics metrics, std::string user_metadata,
             const std::optional<std::string>& staging) {
            EvaluateOptions options{.metrics = std::move(metrics), .user_metadata = std::move(user_metadata)};
            if (staging.has_value()) options.staging = StagingOf(*staging);
            Signals signals;
            options.cancelled = [&] { return signals.Check(); };
            absl::StatusOr<SaveHandle> evaluated =
                handle.Call([&](auto& c) { return c.Evaluate(step, state, options); });
            signals.Raise();
            return ValueOrRaise(std::move(evaluated));
          },
          "step"_a, "state"_a, "metrics"_a, "user_metadata"_a, "staging"_a.none())
      .def("add_evaluator",
           [](Handle& handle, const nb::dict& options, nb::object function) {
             EvaluatorOptions native = EvaluatorOptionsOf(options);
             EvaluatorFunction called = FunctionOf(std::move(function));
             RaiseUnlessOk(handle.Call([&](auto& c) { return c.AddEvaluator(std::move(native), std::move(called)); }));
           })
      .def("add_health_monitor",
           [](Handle& handle, HealthMonitor& monitor) {
             EvaluatorOptions options = monitor.evaluator_options();
             EvaluatorFunction function = monitor.function();
             RaiseUnlessOk(
                 handle.Call([&](auto& c) { return c.AddEvaluator(std::move(options), std::move(function)); }));
           })
      .def("add_average",
           [](Handle& handle, const nb::dict& options) {
             std::shared_ptr<Companion> average = ValueOrRaise(MakeAverage(AverageOptionsOf(options)));
             RaiseUnlessOk(handle.Call([&](auto& c) { return c.AddCompanion(std::move(average)); }));
           })
      .def(
          "least_time_left",
          [](Handle& handle, double left) {
            // One that is preempted if there is an end to its time.
            const absl::Duration time = std::max(absl::Seconds(left), absl::ZeroDuration());
            std::unique_ptr<PreemptionGuard> guard =
                ValueOrRaise(PreemptionGuard::Install({.signals = {}, .grace = time, .end = absl::Now() + time}));
            handle.Call([&](auto& c) { return guard->PreemptedOnAnyRank(c); });
            return absl::ToDoubleSeconds(guard->deadline() - absl::Now());
          },
          "left"_a, "Of a job of several ranks: what the rank with the least time left has, in seconds.")
      .def(
          "save_and_close",
          [](Handle& handle, int64_t step, TreeState& state, Metrics metrics, std::string user_metadata, bool overwrite,
             double grace, double left) {
            SaveOptions options{
                .metrics = std::move(metrics), .user_metadata = std::move(user_metadata), .overwrite = overwrite};
            // Without signals of its own: Python has seen the signal.
            std::unique_ptr<PreemptionGuard> guard = ValueOrRaise(PreemptionGuard::Install(
                {.signals = {}, .grace = absl::Seconds(grace), .end = absl::Now() + absl::Seconds(left)}));
            handle.NoteBegun();
            const PreemptionReport report =
                handle.Call([&](auto& c) { return guard->SaveAndClose(c, step, state, std::move(options)); });
            const auto status = [](const absl::Status& status) {
              return std::make_pair(static_cast<int>(status.code()), std::string(status.message()));
            };
            return std::make_tuple(status(report.save), status(report.close), report.Describe());
          },
          "((code, message) of the save and of the close, a line for a log)")
      .def(
          "wait_until_evaluated",
          [](Handle& handle, double seconds) {
            RaiseUnlessOk(
                handle.Call([&](auto& c) { return c.WaitUntilEvaluated(absl::Now() + absl::Seconds(seconds)); }));
          },
          "Raises DeadlineExceededError if an evaluation still runs after so many seconds.")
      .def("resume",
           [](Handle& handle, TreeState& state, const nb::dict& options) {
             const RestoreOptions native = RestoreOptionsOf(options);
             handle.NoteBegun();
             return ValueOrRaise(handle.Call([&](auto& c) { return c.Resume(state, native); }));
           })
      .def("restore",
           [](Handle& handle, TreeState& state, const std::string& selector, const nb::dict& options) {
             const RestoreOptions native = RestoreOptionsOf(options);
             const StepSelector step = ValueOrRaise(StepSelector::Parse(selector));
             handle.NoteBegun();
             return ReportDict(ValueOrRaise(handle.Call([&](auto& c) {
               return selector == "latest" ? c.RestoreLatest(state, native) : c.Restore(step, state, native);
             })));
           })
      .def("steps",
           [](Handle& handle) {
             nb::list out;
             for (const StepInfo& info : ValueOrRaise(handle.Call([](auto& c) { return c.Steps(); }))) {
               out.append(DictOf(info));
             }
             return out;
           })
      .def("latest_step",
           [](Handle& handle) { return InfoOrRaise(handle.Call([](auto& c) { return c.LatestStep(); })); })
      .def("best_step",
           [](Handle& handle, const std::string& metric, const std::string& mode) {
             const std::optional<BestMode> given = ModeOf(mode);
             return InfoOrRaise(handle.Call(
                 [&](auto& c) { return given.has_value() ? c.BestStep(metric, *given) : c.BestStep(metric); }));
           })
      .def("report_metrics",
           [](Handle& handle, int64_t step, const std::string& evaluator, const Metrics& metrics) {
             return handle.Call([&](auto& c) { return c.ReportMetrics(step, evaluator, metrics); });
           })
      .def("pin",
           [](Handle& handle, int64_t step, const std::string& note) {
             RaiseUnlessOk(handle.Call([&](auto& c) { return c.Pin(step, note); }));
           })
      .def("unpin",
           [](Handle& handle, int64_t step) { RaiseUnlessOk(handle.Call([&](auto& c) { return c.Unpin(step); })); })
      .def("tag",
           [](Handle& handle, int64_t step, const std::string& name) {
             RaiseUnlessOk(handle.Call([&](auto& c) { return c.Tag(step, name); }));
           })
      .def("untag", [](Handle& handle,
                       const std::string& name) { RaiseUnlessOk(handle.Call([&](auto& c) { return c.Untag(name); })); })
      .def("delete",
           [](Handle& handle, int64_t step, const std::string& reason) {
             RaiseUnlessOk(handle.Call([&](auto& c) { return c.Delete(step, reason); }));
           })
      .def("discard_after",
           [](Handle& handle, int64_t step, const std::string& reason) {
             return ValueOrRaise(handle.Call([&](auto& c) { return c.DiscardAfter(step, reason); }));
           })
      .def("committed",
           [](Handle& handle, int64_t step) { return handle.Call([&](auto& c) { return c.Committed(step); }); })
      .def("set_save_interval",
           [](Handle& handle, int64_t steps) {
             RaiseUnlessOk(handle.Call([&](auto& c) { return c.SetSaveInterval(steps); }));
           })
      .def(
          "hurry",
          [](Handle& handle) {
            handle.Call([](auto& c) { return c.WaitUntilEvaluated(absl::InfinitePast()); }).IgnoreError();
          },
          "The saves in flight are waited for: they compress no more than the disk leaves time for.")
      .def("prepare",
           [](Handle& handle, TreeState& state, bool in_background) {
             RaiseUnlessOk(
                 handle.Call([&](auto& c) { return in_background ? c.PrepareInBackground(state) : c.Prepare(state); }));
           })
      .def("wait_until_entry_staged",
           [](Handle& handle, const std::string& entry) {
             RaiseUnlessOk(handle.Call([&](auto& c) { return c.WaitUntilStaged(entry); }));
           })
      .def("tidy", [](Handle& handle) { RaiseUnlessOk(handle.Call([](auto& c) { return c.Tidy(); })); })
      .def("retention_plan",
           [](Handle& handle) {
             nb::list out;
             for (const RetentionDecision& decision :
                  ValueOrRaise(handle.Call([](auto& c) { return c.RetentionPlan(); }))) {
               out.append(DictOf(decision));
             }
             return out;
           })
      .def("statistics", [](Handle& handle) { return DictOf(handle.Call([](auto& c) { return c.statistics(); })); })
      .def("check_for_errors",
           [](Handle& handle) { RaiseUnlessOk(handle.Call([](auto& c) { return c.CheckForErrors(); })); })
      .def(
          "close",
          [](Handle& handle, double seconds) {
            const auto close = [&](auto& c) { return c.Close(absl::Now() + absl::Seconds(seconds)); };
            const absl::Status status = handle.Call(close);
            if (absl::IsDeadlineExceeded(status)) Raise(status);
            // Of a checkpointer that is closed, failures of saves included, the second call has nothing to say.
            RaiseUnlessOk(status.ok() ? status : handle.Call(close));
            if (!status.ok()) handle.NoteFailure(status);
          },
          "Raises if it is not closed, and may be called again then: DeadlineExceededError within so many seconds, "
          "FailedPreconditionError called by an evaluator, ResourceExhaustedError without a thread. Those of saves are "
          "in failures().")
      .def("all_committed", &Handle::all_committed, "Whether no save is in flight. Does not look at the outcomes.")
      .def(
          "gather_failures",
          [](Handle& handle) {
            for (;;) {
              const absl::Status status = handle.Call([](auto& c) { return c.CheckForErrors(); });
              if (status.ok()) return;
              handle.NoteFailure(status);
            }
          },
          "Reads every failure that was not read yet, for failures().")
      .def("failures", &Handle::failures, "[(code, message)] that gather_failures and close have read.")
      .def("release", &Handle::Release, "After a close that ran out of time: gives up what still runs.")
      .def("wait_for_events", [](Handle& handle, double seconds) { return WaitForEvents(handle.events(), seconds); })
      .def("wake", [](Handle& handle) { handle.events().Wake(); });
}

}  // namespace tidemark::python
