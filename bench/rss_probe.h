// A process of its own in which nothing but a save happens, so that its peak memory is the save's.

#ifndef TIDEMARK_BENCH_RSS_PROBE_H_
#define TIDEMARK_BENCH_RSS_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace tidemark::bench {

// Saves a state of `bytes` in `tensors` tensors once, with the default options, in a new store in `directory`, and
// returns by how many bytes the process's resident memory at its peak was above what it was before the store was
// opened. For a process that has done nothing else.
absl::StatusOr<uint64_t> MeasureSaveMemory(const std::string& directory, uint64_t bytes, size_t tensors);

// The same in a new process, which runs this program with the three arguments behind kRssProbeOption.
absl::StatusOr<uint64_t> RunRssProbe(const std::string& directory, uint64_t bytes, size_t tensors);

inline constexpr const char* kRssProbeOption = "--rss-probe";

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_RSS_PROBE_H_
