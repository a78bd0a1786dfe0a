// Stores of many steps, and a process of its own that is killed while it has a store open.

#ifndef TIDEMARK_BENCH_ROWS_JOURNAL_H_
#define TIDEMARK_BENCH_ROWS_JOURNAL_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/context.h"

namespace tidemark::bench {

// A new store of `steps` steps, at the path that is returned. All but the last few are made up: a record, and a folder
// in which there is no shard, for an opening looks into none. The last few are saved.
absl::StatusOr<std::string> MakeStore(Context& context, size_t steps);

// Opens the store to write and finds the latest step and the one of the lowest loss; in seconds.
absl::StatusOr<double> TimedOpen(const std::string& directory);

// Opens the store, saves a step, and kills the process. Returns only an error.
absl::Status LeaveStoreOpen(const std::string& directory);

// This program with the store's directory behind it calls LeaveStoreOpen.
inline constexpr const char* kLeaveOpenOption = "--leave-open";

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_ROWS_JOURNAL_H_
