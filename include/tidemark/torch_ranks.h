// An all-gather for RankOptions over the c10d::Store of a LibTorch job.

#ifndef TIDEMARK_TORCH_RANKS_H_
#define TIDEMARK_TORCH_RANKS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tidemark/ranks.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace tidemark {

// See GatherOverKeys. `store`: a client of its own, because a client that waits for a key makes every other user of it
// wait; not null. Its functions may throw, which is kUnavailable here. `prefix`: a store outlives an elastic restart,
// and so do its keys.
AllGather GatherOverStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int32_t rank, int32_t world_size,
                          absl::Duration timeout = absl::Minutes(10));

}  // namespace tidemark

#endif  // TIDEMARK_TORCH_RANKS_H_
