// Whether what is to be the same on all ranks of a job is the same.

#ifndef TIDEMARK_REPLICAS_H_
#define TIDEMARK_REPLICAS_H_

#include "absl/status/status.h"
#include "tidemark/ranks.h"
#include "tidemark/state.h"

namespace tidemark {

// Compares the tensors that RankOptions::replicated says are the same on all ranks, bit for bit as they would be saved.
// A fault of a machine or of the trainer can make them differ, and only one rank's are saved. Buffers, values and boxes
// are not compared. Reads all of these tensors, those on devices by way of memory for one of them. Tells the other
// ranks two digests, and where the bytes differ a digest of each tensor.
//
// Called by all ranks alike, between two saves, on the thread that uses the checkpointer; blocks until all have called
// it. Waits until an overlapped save has read the state, and changes nothing. In a job of one process it is ok. The
// same result on all ranks:
//   kFailedPrecondition   Tensors differ: the message has the first of them, and for each the ranks that differ from
//                         most. Or the ranks have other tensors, or are in different calls.
//   kInvalidArgument      No tensor of the state is replicated. Or, of this rank alone, while the others wait for it:
//                         the options have no `all_gather`, or no rank of that number.
//   Other errors: those of the state, and of `all_gather`, which is not to be called again after its error: close the
//   checkpointer.
absl::Status CompareReplicas(State& state, const RankOptions& ranks);

}  // namespace tidemark

#endif  // TIDEMARK_REPLICAS_H_
