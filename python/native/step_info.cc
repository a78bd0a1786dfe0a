// Records of steps as keyword arguments of the package's data classes.

#include <string>

#include "absl/time/time.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/native/bindings.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

double Timestamp(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

}  // namespace

nb::dict DictOf(const Evaluation& evaluation) {
  nb::dict out;
  out["evaluator"] = evaluation.evaluator;
  out["worker"] = evaluation.worker;
  out["outcome"] = std::string(OutcomeName(evaluation.outcome));
  out["reason"] = evaluation.reason;
  out["metrics"] = evaluation.metrics;
  out["unhealthy"] = evaluation.unhealthy;
  out["reported"] = Timestamp(evaluation.reported);
  out["took"] = absl::ToDoubleSeconds(evaluation.took);
  return out;
}

nb::dict DictOf(const StepInfo& info) {
  nb::list evaluations;
  for (const Evaluation& evaluation : info.evaluations) evaluations.append(DictOf(evaluation));
  nb::dict out;
  out["step"] = info.step;
  out["state"] = std::string(StepStateName(info.state));
  out["attempt"] = info.attempt;
  out["sequence"] = info.sequence;
  out["created"] = Timestamp(info.created);
  out["world_size"] = info.world_size;
  out["metrics"] = info.metrics;
  out["evaluations"] = evaluations;
  out["user_metadata"] = info.user_metadata;
  out["entry_count"] = info.entry_count;
  out["logical_bytes"] = info.logical_bytes;
  out["stored_bytes"] = info.stored_bytes;
  out["reused_bytes"] = info.reused_bytes;
  out["blocked"] = absl::ToDoubleSeconds(info.blocked);
  out["reason"] = info.reason;
  out["pinned"] = info.pinned;
  out["pin_note"] = info.pin_note;
  out["tags"] = info.tags;
  out["kept"] = info.kept;
  out["unhealthy"] = info.unhealthy();
  return out;
}

}  // namespace tidemark::python
