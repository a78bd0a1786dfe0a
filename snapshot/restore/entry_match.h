// EntryMatch: which entry of a checkpoint goes into which entry of a state, decided before anything is touched.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_ENTRY_MATCH_H_
#define TIDEMARK_SNAPSHOT_RESTORE_ENTRY_MATCH_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/shard/format/shard_format.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/state.h"

namespace tidemark {

struct EntryMatch {
  struct Pair {
    size_t saved = 0;  // index into the checkpoint's entries
    size_t entry = 0;  // index into the state's, which is a box of it or all of it
  };
  // To be read: tied entries of the state once.
  std::vector<Pair> pairs;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
};

// What else there is to restore into than the one state.
struct OtherEntries {
  // By index into the checkpoint's entries: it is a companion's, and nobody need want it. Empty: none is.
  std::vector<bool> is_companions;
  // The names of those that go into a companion now; a pattern may name one of them.
  std::vector<std::string> restored;
  bool reads_boxes = false;  // an entry of the state may be a box of the checkpoint's
};

// The specs of the checkpoint's entries under the names that the state knows them by. An entry that is renamed takes
// the place of one that has its new name already.
std::vector<EntrySpec> RenamedSpecs(const storage::ShardIndex& index, const RestoreOptions& options);

// By index: whether a renamed entry has taken its place. `saved` is what RenamedSpecs gave.
std::vector<bool> FindReplaced(const storage::ShardIndex& index, const std::vector<EntrySpec>& saved);

// Whether RestoreOptions::only asks for the entry that the state knows by this name.
bool IsWanted(std::string_view name, const RestoreOptions& options);

// Whether two entries of a checkpoint have the same bytes, as the digests of their chunks tell.
bool HaveSameBytes(const storage::ShardIndex& index, size_t a, size_t b);

// kInvalidArgument: one message that lists every difference which `options` does not allow. `saved` is what
// RenamedSpecs gave. Pure.
absl::StatusOr<EntryMatch> MatchEntries(const storage::ShardIndex& index, const std::vector<EntrySpec>& saved,
                                        const State& state, const RestoreOptions& options,
                                        const OtherEntries& others = {});

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_ENTRY_MATCH_H_
