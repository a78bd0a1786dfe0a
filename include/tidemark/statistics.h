// Counters and durations of an AsyncCheckpointer since it was opened.

#ifndef TIDEMARK_STATISTICS_H_
#define TIDEMARK_STATISTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tidemark {

// A histogram of durations.
struct DurationHistogram {
  // Upper ends of the buckets in seconds, ascending. One more bucket holds everything longer.
  std::vector<double> bounds;
  std::vector<uint64_t> counts;  // bounds.size() + 1 of them; not cumulative
  double sum_seconds = 0;
  uint64_t count = 0;
};

struct CheckpointerStatistics {
  // The time that the trainer was blocked, by phase: "consumers" (an evaluator that blocks), "room" (no staging
  // memory), "copy". One sample for each save that had the phase.
  std::map<std::string, DurationHistogram> blocked;
  // Durations of background work: "write" (compressing and writing, until synced), "commit", "evaluate", "delete".
  std::map<std::string, DurationHistogram> background;

  uint64_t saves_committed = 0;
  uint64_t saves_failed = 0;
  uint64_t steps_deleted = 0;
  uint64_t reports_recorded = 0;  // without repeated reports
  uint64_t reports_rejected = 0;
  // Skipped saves ("no room") and evaluations ("evaluator NAME: lagging" and others), by reason. Details that differ
  // between steps are in the step's history only.
  std::map<std::string, uint64_t> skipped;

  uint64_t logical_bytes = 0;  // of the committed saves
  uint64_t stored_bytes = 0;
  uint64_t reused_bytes = 0;

  int64_t in_flight = 0;  // saves that are neither committed nor failed
  uint64_t staging_bytes_in_use = 0;
  uint64_t staging_bytes_max = 0;
  std::optional<int64_t> last_committed_step;
  absl::Time last_committed_time;  // set if last_committed_step is
};

// In the text format that Prometheus scrapes (version 0.0.4), all names beginning with "tidemark_".
std::string PrometheusText(const CheckpointerStatistics& statistics);

}  // namespace tidemark

#endif  // TIDEMARK_STATISTICS_H_
