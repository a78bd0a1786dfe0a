// HousekeeperHost: what a housekeeper and the parts of its work are given.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_HOST_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_HOST_H_

#include <functional>

#include "snapshot/listeners.h"
#include "snapshot/statistics_collector.h"
#include "storage/io/file_system.h"
#include "storage/retention/retention.h"
#include "storage/store/store.h"
#include "tidemark/statistics.h"

namespace tidemark {

// What a housekeeper works with and for. Not owned, and used until Housekeeper::Stop has returned.
struct HousekeeperHost {
  storage::FileSystem& files;
  storage::Store& store;
  const Listeners& listeners;
  StatisticsCollector& statistics;
  std::function<CheckpointerStatistics()> read_statistics;  // all of them
  std::function<storage::Claims()> claims;                  // this process's own, on steps that it has yet to read
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_HOUSEKEEPER_HOST_H_
