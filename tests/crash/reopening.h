// What production code makes of a disk after a crash, held against the oracle.

#ifndef TIDEMARK_TESTS_CRASH_REOPENING_H_
#define TIDEMARK_TESTS_CRASH_REOPENING_H_

#include <string>
#include <vector>

#include "storage/io/file_system.h"
#include "tests/crash/oracle.h"
#include "tests/storage/io/simulated_disk.h"

namespace tidemark::crash {

struct Reopening {
  std::vector<std::string> violations;
  std::vector<std::string> warnings;  // what production code said meanwhile
};

struct ReopeningOptions {
  bool journal_is_sound = true;  // so it must not be made anew, and a reader beside the trainer sees the same
  bool again = false;            // opens the store once more, which then was closed in good order, and looks again
};

// Opens the store on `files`, which is `disk` or stands in front of it, looks at all of it, restores every step, saves
// another one, restores that, and closes the store. What has been seen is promised from then on: marks in the disk's
// log say so, for crashes of all this.
Reopening Reopen(storage::SimulatedDisk& disk, storage::FileSystem& files, Oracle oracle,
                 const ReopeningOptions& options);

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_REOPENING_H_
