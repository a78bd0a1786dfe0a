// The states that a crash could leave of a logged disk, each once.

#ifndef TIDEMARK_TESTS_STORAGE_IO_CRASH_STATES_H_
#define TIDEMARK_TESTS_STORAGE_IO_CRASH_STATES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "tests/storage/io/disk_log.h"

namespace tidemark::storage {

// One crash: before operation `prefix`, with `lost` undone.
struct Crash {
  size_t prefix = 0;
  std::vector<LostOperation> lost;
  // "after 41 of 90 operations, without 38 (write ...), 40 (create ...)": enough to make it again from the same log.
  std::string ToString(const DiskLog& log) const;
};

struct CrashOptions {
  size_t begin = 0;               // the first prefix
  size_t all_subsets_up_to = 12;  // unsynced operations of which every subset is lost in turn; beyond: singles, pairs
  size_t all_pairs_up_to = 1000;  // of more than these no pairs, which would be too many
  size_t samples = 16;            // and so many random subsets at each prefix that has more, all but nothing among them
  size_t torn = 4;                // random tearings at each prefix whose unsynced writes span several sectors
  uint64_t promised = 0;          // stands for what was promised before the log begins
  uint64_t seed = 0;              // of the samples and the tearings; a state depends on seed, log and prefix only
};

// Calls `visit` with every crash whose image has not been seen yet, in the order of prefixes; `seen` holds the
// fingerprints with the marks that were logged by then (the same image is another state after another promise) and
// may be shared between calls. Stops early when `visit` returns false. Returns how many were visited.
size_t ForEachCrash(const DiskLog& log, const CrashOptions& options, std::unordered_set<uint64_t>& seen,
                    const std::function<bool(const Crash&, const DiskImage&)>& visit);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_CRASH_STATES_H_
