// Statistics and retention's decisions as keyword arguments of the package's data classes.

#include <string>

#include "absl/time/time.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/native/bindings.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

nb::dict HistogramsOf(const std::map<std::string, DurationHistogram>& histograms) {
  nb::dict out;
  for (const auto& [name, histogram] : histograms) {
    nb::dict one;
    one["bounds"] = histogram.bounds;
    one["counts"] = histogram.counts;
    one["sum_seconds"] = histogram.sum_seconds;
    one["count"] = histogram.count;
    out[name.c_str()] = one;
  }
  return out;
}

}  // namespace

nb::dict DictOf(const CheckpointerStatistics& statistics) {
  nb::dict out;
  out["blocked"] = HistogramsOf(statistics.blocked);
  out["background"] = HistogramsOf(statistics.background);
  out["saves_committed"] = statistics.saves_committed;
  out["saves_failed"] = statistics.saves_failed;
  out["steps_deleted"] = statistics.steps_deleted;
  out["reports_recorded"] = statistics.reports_recorded;
  out["reports_rejected"] = statistics.reports_rejected;
  out["skipped"] = statistics.skipped;
  out["logical_bytes"] = statistics.logical_bytes;
  out["stored_bytes"] = statistics.stored_bytes;
  out["reused_bytes"] = statistics.reused_bytes;
  out["in_flight"] = statistics.in_flight;
  out["staging_bytes_in_use"] = statistics.staging_bytes_in_use;
  out["staging_bytes_max"] = statistics.staging_bytes_max;
  out["last_committed_step"] = statistics.last_committed_step;
  out["last_committed_time"] = nb::none();
  if (statistics.last_committed_step) {
    out["last_committed_time"] = absl::ToDoubleSeconds(statistics.last_committed_time - absl::UnixEpoch());
  }
  out["prometheus_text"] = PrometheusText(statistics);
  return out;
}

nb::dict DictOf(const RetentionDecision& decision) {
  nb::dict out;
  out["step"] = decision.step;
  out["keep"] = decision.keep;
  out["reason"] = decision.reason;
  return out;
}

}  // namespace tidemark::python
