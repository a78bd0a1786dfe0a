// StatisticsCollector: counts what a checkpointer does.

#ifndef TIDEMARK_SNAPSHOT_STATISTICS_COLLECTOR_H_
#define TIDEMARK_SNAPSHOT_STATISTICS_COLLECTOR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "snapshot/saves/save_outcome.h"
#include "tidemark/statistics.h"

namespace tidemark {

// Thread-safe. Each call holds the lock for as long as it takes to add a few numbers.
class StatisticsCollector {
 public:
  StatisticsCollector();

  // A save that others will settle has begun.
  void Begin();

  // It is settled. Of one that committed `now` is when, by the wall clock.
  void Settle(const SaveOutcome& outcome, absl::Time now);

  // One more sample of CheckpointerStatistics::background.
  void AddBackground(std::string_view phase, absl::Duration took);

  void AddSkipped(const std::string& reason);
  void AddDeleted(uint64_t steps);
  void AddRecorded(uint64_t reports);
  void AddRejected(uint64_t reports);

  // Grows with every call above.
  uint64_t changes() const;

  // All but the staging memory, which is the arena's to say.
  CheckpointerStatistics Get() const;

 private:
  mutable absl::Mutex mutex_;
  CheckpointerStatistics statistics_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STATISTICS_COLLECTOR_H_
