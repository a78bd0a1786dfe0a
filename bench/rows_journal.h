// A process of its own that is killed while it has a store open.

#ifndef TIDEMARK_BENCH_ROWS_JOURNAL_H_
#define TIDEMARK_BENCH_ROWS_JOURNAL_H_

#include <string>

#include "absl/status/status.h"

namespace tidemark::bench {

// Opens the store, saves a step, and kills the process. Returns only an error.
absl::Status LeaveStoreOpen(const std::string& directory);

// This program with the store's directory behind it calls LeaveStoreOpen.
inline constexpr const char* kLeaveOpenOption = "--leave-open";

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_ROWS_JOURNAL_H_
