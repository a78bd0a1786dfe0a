// EntryMatch: which entry of a checkpoint goes into which entry of a state, decided before anything is touched.

#ifndef TIDEMARK_SNAPSHOT_ENTRY_MATCH_H_
#define TIDEMARK_SNAPSHOT_ENTRY_MATCH_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/shard/shard_format.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/state.h"

namespace tidemark {

struct EntryMatch {
  struct Pair {
    size_t saved = 0;  // index into the checkpoint's entries
    size_t entry = 0;  // index into the state's
  };
  // To be read: tied entries of the state once.
  std::vector<Pair> pairs;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
};

// The specs of the checkpoint's entries under the names that the state knows them by.
std::vector<EntrySpec> RenamedSpecs(const storage::ShardIndex& index, const RestoreOptions& options);

// Whether RestoreOptions::only asks for the entry that the state knows by this name.
bool IsWanted(std::string_view name, const RestoreOptions& options);

// kInvalidArgument: one message that lists every difference which `options` does not allow. `saved` is what
// RenamedSpecs gave. Pure.
absl::StatusOr<EntryMatch> MatchEntries(const storage::ShardIndex& index, const std::vector<EntrySpec>& saved,
                                        const State& state, const RestoreOptions& options);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_ENTRY_MATCH_H_
