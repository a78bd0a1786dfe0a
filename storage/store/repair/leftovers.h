// What dead processes have left in a store, and what in it is not Tidemark's: a part of a repair (repair.h).

#ifndef TIDEMARK_STORAGE_STORE_REPAIR_LEFTOVERS_H_
#define TIDEMARK_STORAGE_STORE_REPAIR_LEFTOVERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/store/repair/store_change.h"
#include "storage/store/store.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

using StepsOfAttempts = std::map<AttemptId, int64_t>;

// The attempts in steps/; none if that is not there. Names that are no attempt's are appended to `*strangers`, if that
// is not null.
absl::StatusOr<StepsOfAttempts> AttemptsOf(FileSystem& files, const StoreLayout& layout,
                                           std::vector<std::string>* strangers = nullptr);

// Tells of attempts that were in steps/ before and are not now: those of saves that were cut short, and what was moved
// to quarantine with them. `adoptable`: those of FindAdoptables.
void TellOfMissing(FileSystem& files, const StoreLayout& layout, const StepsOfAttempts& before,
                   const StepsOfAttempts& after, const OnStoreChange& tell, const std::set<AttemptId>& adoptable = {});

struct LeftoversOptions {
  bool had_retired = false;      // there was a retired shard before the store was opened, which makes another one
  bool offers_adoption = false;  // finds out which attempts could be adopted (adoption.h)
  // Called when deletions are finished and before attempts that were never committed go. Null: nothing is to be done.
  std::function<absl::Status()> before_sweep;
  std::vector<std::string>& warnings;  // of the store, in its own words
  const OnStoreChange& tell;
};

// Removes temporary files, dead leases, the files of deleted steps and those of attempts that were never committed, and
// tells of each, and of what is left alone. An error is the disk's.
absl::Status RemoveLeftovers(FileSystem& files, Store& store, const LeftoversOptions& options);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_REPAIR_LEFTOVERS_H_
