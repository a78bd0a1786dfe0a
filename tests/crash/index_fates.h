// What may become of a store's index beside a crash: it is lost, old, damaged, or another store's. By design an index
// is never ahead of its journal; RebuildWithTheIndex (scenarios.h) has one that is.

#ifndef TIDEMARK_TESTS_CRASH_INDEX_FATES_H_
#define TIDEMARK_TESTS_CRASH_INDEX_FATES_H_

#include "tests/crash/crash_names.h"
#include "tests/storage/io/disk_image.h"
#include "tests/storage/io/disk_log.h"

namespace tidemark::crash {

// The image of a disk with the index that the disaster says. `log`: of what was done before; older indexes are from
// there.
storage::DiskImage WithIndexOf(const Disaster& disaster, const storage::DiskImage& image, const storage::DiskLog& log);

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_INDEX_FATES_H_
