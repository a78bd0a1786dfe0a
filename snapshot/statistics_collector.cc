#include "snapshot/statistics_collector.h"

#include <algorithm>
#include <vector>

namespace tidemark {
namespace {

// A tenth of a millisecond, which is a copy of a few megabytes, to five minutes, which is a slow disk; three in each
// power of ten, nearly.
const std::vector<double>& Bounds() {
  static const auto* const bounds =
      new std::vector<double>{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
  return *bounds;
}

DurationHistogram Empty() {
  return {.bounds = Bounds(), .counts = std::vector<uint64_t>(Bounds().size() + 1), .sum_seconds = 0, .count = 0};
}

void Add(DurationHistogram& histogram, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  const auto bucket = std::lower_bound(histogram.bounds.begin(), histogram.bounds.end(), seconds);
  ++histogram.counts[static_cast<size_t>(bucket - histogram.bounds.begin())];
  histogram.sum_seconds += seconds;
  ++histogram.count;
}

}  // namespace

StatisticsCollector::StatisticsCollector() {
  for (const char* phase : {"consumers", "room", "copy"}) statistics_.blocked.emplace(phase, Empty());
  for (const char* phase : {"write", "commit", "evaluate", "delete"}) statistics_.background.emplace(phase, Empty());
}

void StatisticsCollector::Begin() {
  absl::MutexLock lock(&mutex_);
  ++changes_;
  ++statistics_.in_flight;
}

void StatisticsCollector::Settle(const SaveOutcome& outcome, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  ++changes_;
  --statistics_.in_flight;
  const HeldTimes& held = outcome.held;
  if (held.consumers > absl::ZeroDuration()) Add(statistics_.blocked["consumers"], held.consumers);
  if (held.room > absl::ZeroDuration()) Add(statistics_.blocked["room"], held.room);
  Add(statistics_.blocked["copy"], held.copy);
  if (outcome.write > absl::ZeroDuration()) Add(statistics_.background["write"], outcome.write);
  if (outcome.commit > absl::ZeroDuration()) Add(statistics_.background["commit"], outcome.commit);
  if (!outcome.status.ok()) {
    ++statistics_.saves_failed;
  } else if (outcome.persist) {
    ++statistics_.saves_committed;
    statistics_.logical_bytes += outcome.info.logical_bytes;
    statistics_.stored_bytes += outcome.info.stored_bytes;
    statistics_.reused_bytes += outcome.info.reused_bytes;
    statistics_.last_committed_step = outcome.step;
    statistics_.last_committed_time = now;
  }
}

void StatisticsCollector::AddBackground(std::string_view phase, absl::Duration took) {
  absl::MutexLock lock(&mutex_);
  ++changes_;
  Add(statistics_.background.try_emplace(std::string(phase), Empty()).first->second, took);
}

void StatisticsCollector::AddSkipped(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  ++changes_;
  ++statistics_.skipped[reason];
}

void StatisticsCollector::AddDeleted(uint64_t steps) {
  absl::MutexLock lock(&mutex_);
  ++changes_;
  statistics_.steps_deleted += steps;
}

void StatisticsCollector::AddRecorded(uint64_t reports) {
  absl::MutexLock lock(&mutex_);
  ++changes_;
  statistics_.reports_recorded += reports;
}

void StatisticsCollector::AddRejected(uint64_t reports) {
  absl::MutexLock lock(&mutex_);
  ++changes_;
  statistics_.reports_rejected += reports;
}

uint64_t StatisticsCollector::changes() const {
  absl::MutexLock lock(&mutex_);
  return changes_;
}

CheckpointerStatistics StatisticsCollector::Get() const {
  absl::MutexLock lock(&mutex_);
  return statistics_;
}

}  // namespace tidemark
