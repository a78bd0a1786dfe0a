// Which rank writes each entry that is the same on all ranks of a job. Pure.

#ifndef TIDEMARK_SNAPSHOT_RANKS_REPLICATED_ENTRIES_H_
#define TIDEMARK_SNAPSHOT_RANKS_REPLICATED_ENTRIES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/bytes/ids.h"
#include "tidemark/state.h"

namespace tidemark {

// The property of a shard whose rank may have left entries to others (StepContents::properties).
inline constexpr std::string_view kReplicatedProperty = "replicated";

struct ReplicatedEntries {
  static constexpr int32_t kEveryRank = -1;

  std::vector<int32_t> writers;            // by entry: the rank that writes it, or kEveryRank
  storage::Digest128 structure;            // of names, kinds, dtypes and shapes of those that one rank writes
  std::vector<std::string> without_entry;  // the patterns that match none
};

// An entry that matches a pattern (snapshot/glob.h) has one writer, unless it is a box, or tied to an entry that has
// none. Tensors are spread by their bytes; those that are tied, and those that are staged together, have the same
// writer. Values, and tensors that change early (buffers, which fit together and may differ from rank to rank), are
// rank 0's.
//
// States that have the same entries of that kind, in any order and beside any others, have the same writers and the
// same structure. With the same structure they have the same writers.
ReplicatedEntries AssignWriters(std::span<const State::Entry> entries, std::span<const std::string> patterns,
                                int32_t world_size);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RANKS_REPLICATED_ENTRIES_H_
