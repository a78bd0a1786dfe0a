// Snapshots made from others: a part of one, and one in half the bytes.

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_FILTERED_SNAPSHOT_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_FILTERED_SNAPSHOT_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/evaluator.h"
#include "tidemark/snapshot.h"

namespace tidemark {

// The indices of the entries whose names match a pattern, ascending; all of them if there is no pattern.
// kInvalidArgument: a pattern matches none.
absl::StatusOr<std::vector<size_t>> MatchingEntries(std::span<const EntrySpec> entries,
                                                    std::span<const std::string> patterns);

// The entries of `base` that match, in its memory, which it holds. `base` itself if there is no pattern. Errors as
// above.
absl::StatusOr<std::shared_ptr<const Snapshot>> FilterSnapshot(std::shared_ptr<const Snapshot> base,
                                                               std::span<const std::string> patterns);

// A copy in memory of its own, in which tensors of float32 and float64 are of the smaller type; see
// half_precision.h. Tied entries stay tied. kResourceExhausted: no memory. Precondition: `half` is not kNone.
absl::StatusOr<std::shared_ptr<const Snapshot>> ToHalfPrecision(const Snapshot& snapshot, HalfPrecision half);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_FILTERED_SNAPSHOT_H_
