// RankOptions: one process of a job of several that saves common steps. Each rank writes a shard of its own, and either
// the whole step is committed or none of it. docs/ranks.md says how a trainer uses it, and has the protocol.

#ifndef TIDEMARK_RANKS_H_
#define TIDEMARK_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tidemark {

// Gives `bytes` to all ranks, and returns what each rank gave, in the order of the ranks: MPI_Allgatherv, or
// torch.distributed.all_gather_object of a Gloo group. The ranks' bytes have different lengths. Called on the trainer's
// thread by functions that all ranks call: Open, Restore, RestoreLatest, Resume, DiscardAfter, PreemptedOnAnyRank,
// CompareReplicas, and ShouldSave if a rule depends on the time or on a function. Save does not call it.
//
// Blocks until all ranks have called it. It should return an error if a rank does not come for so long that the job is
// to end: while one rank waits in it, another one may still end its saves (vote_timeout + outcome_margin), wait for
// evaluators (RestoreOptions::evaluations_timeout), or read its part of a step. Open or the restore then returns that
// error. After an error it is not called again.
//
// Most texts are short. In a restore rank 0 gives the record of a step, with an item for each rank that saved it, and
// with the step's metadata, metrics and evaluations.
using AllGather = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& bytes)>;

// A store of keys and values that all ranks reach. Every function returns without waiting for another rank.
class RankKeys {
 public:
  virtual ~RankKeys() = default;
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // nullopt: the key is not there.
  virtual absl::StatusOr<std::optional<std::string>> Find(const std::string& key) = 0;
  // Best effort.
  virtual void Remove(const std::string& key) = 0;
};

// An all-gather over such a store: rank 0 collects what each rank has set, and sets all of it under one key. A rank
// that comes more than `timeout` after rank 0 makes the call kDeadlineExceeded on all ranks that have come, and the
// message names it; rank 0 itself is waited for twice as long. `keys` is not null, and no other thread uses it during a
// call. `prefix`: of the keys; another one for each start of the job, since keys of an earlier start may still be
// there.
AllGather GatherOverKeys(std::shared_ptr<RankKeys> keys, std::string prefix, int32_t rank, int32_t world_size,
                         absl::Duration timeout = absl::Minutes(10));

struct RankOptions {
  int32_t rank = 0;  // from 0; rank 0 holds the store
  // Processes of the job, at most 2^20. 1: it has one process, and the other options do not count.
  int32_t world_size = 1;
  AllGather all_gather = {};

  // Patterns of names, with '*' and '?' as in RestoreOptions::only, of entries that are the same on all ranks: in a
  // data-parallel job the model and the optimizer. Each of them is written by one rank. Parameters are spread over the
  // ranks by their bytes, each with what the optimizer keeps for it. Values and buffers are rank 0's. Every rank writes
  // what it has of the rest: entries that no pattern matches, boxes, and what is tied to one of these.
  //
  // A rank copies only what it writes, or all of its state while it has evaluators. A save is kAborted if the ranks
  // differ in the names, kinds, dtypes or shapes of these entries, or in which are boxes, tied or buffers. It does not
  // compare their bytes (CompareReplicas does), so what is one rank's own, such as the state of its generator, needs a
  // name that no pattern matches. The same on all ranks.
  std::vector<std::string> replicated = {};

  // From the start of writing on: how long rank 0 waits until all ranks have written their shards, and how much longer
  // the others wait for what it decides. Then the save fails: kAborted, the step never will be committed; or kUnknown,
  // because rank 0 has not answered. Each rank counts from its own start. So if ranks begin a save further apart than
  // the margin, the early ones may be told kUnknown of a step that is committed.
  absl::Duration vote_timeout = absl::Minutes(10);
  absl::Duration outcome_margin = absl::Minutes(1);
};

}  // namespace tidemark

#endif  // TIDEMARK_RANKS_H_
