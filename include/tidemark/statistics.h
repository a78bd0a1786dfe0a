// What an AsyncCheckpointer has done since it was opened, as numbers.

#ifndef TIDEMARK_STATISTICS_H_
#define TIDEMARK_STATISTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tidemark {

// Durations, by how long they were.
struct DurationHistogram {
  // Upper ends of the buckets in seconds, ascending; the last bucket, which has none, holds what is longer.
  std::vector<double> bounds;
  std::vector<uint64_t> counts;  // bounds.size() + 1 of them; not cumulative
  double sum_seconds = 0;
  uint64_t count = 0;
};

struct CheckpointerStatistics {
  // How long the trainer was held, by phase: "consumers" (an evaluator that blocks), "room" (no staging memory),
  // "copy"; one sample for each save that had the phase.
  std::map<std::string, DurationHistogram> blocked;
  // What happened behind it: "write" (compressing and writing, until synced), "commit", "evaluate", "delete".
  std::map<std::string, DurationHistogram> background;

  uint64_t saves_committed = 0;
  uint64_t saves_failed = 0;
  uint64_t steps_deleted = 0;
  uint64_t reports_recorded = 0;  // those that said something new
  uint64_t reports_rejected = 0;
  // By reason: "no room" for saves; for evaluations "evaluator NAME: lagging" and a few others. What differs from step
  // to step is in the step's history only.
  std::map<std::string, uint64_t> skipped;

  uint64_t logical_bytes = 0;  // of the committed saves
  uint64_t stored_bytes = 0;
  uint64_t reused_bytes = 0;

  int64_t in_flight = 0;  // saves that are neither committed nor failed
  uint64_t staging_bytes_in_use = 0;
  uint64_t staging_bytes_max = 0;
  std::optional<int64_t> last_committed_step;
  absl::Time last_committed_time;  // meaningful with the step
};

// In the text format that Prometheus scrapes (version 0.0.4), all names beginning with "tidemark_".
std::string PrometheusText(const CheckpointerStatistics& statistics);

}  // namespace tidemark

#endif  // TIDEMARK_STATISTICS_H_
