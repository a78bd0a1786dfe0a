// StoreUpkeep: the part of the housekeeper's work that looks after the store's files.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_STORE_UPKEEP_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_STORE_UPKEEP_H_

#include "snapshot/housekeeping/housekeeper_host.h"
#include "snapshot/housekeeping/retry_warnings.h"
#include "storage/io/warn_once.h"

namespace tidemark {

// Thread-compatible. What it is given outlives it.
class StoreUpkeep {
 public:
  StoreUpkeep(const HousekeeperHost& host, RetryWarnings& warnings) : host_(host), warnings_(warnings) {}

  // Removes what earlier processes left of unfinished saves, until one sweep succeeds. Makes room for the next entries
  // of the journal, since an append that finds none takes longer and fails on a full disk, and packs old ones. `last`:
  // no append follows, so a failure to make room is not warned of.
  void Run(bool last);

 private:
  const HousekeeperHost& host_;
  RetryWarnings& warnings_;
  storage::WarnOnce sweep_warnings_;
  bool swept_ = false;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_STORE_UPKEEP_H_
