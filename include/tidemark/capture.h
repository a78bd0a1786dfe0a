// A rollback without the disk: a copy of a state in host memory, and the way back.
//
//   absl::StatusOr<std::shared_ptr<const tidemark::Snapshot>> before = tidemark::Capture(state);
//   if (!before.ok()) return before.status();
//   ...
//   absl::Status back = tidemark::RestoreFrom(**before, state);

#ifndef TIDEMARK_CAPTURE_H_
#define TIDEMARK_CAPTURE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/restore_options.h"
#include "tidemark/snapshot.h"
#include "tidemark/state.h"

namespace tidemark {

// Copies the state into host memory that is released with the snapshot. Blocks until that is done. No checkpointer is
// needed. The snapshot's step is 0. Call it on the thread that changes the state. If an overlapped save still reads the
// tensors, it waits for that first.
//
// Every call takes new memory for the whole state and touches all of it. It also starts a thread for each further core,
// at most 7, which end with the call. A checkpointer's saves use their memory and threads again.
//   kInvalidArgument: the state (a name twice).
//   kResourceExhausted: the system has too little memory. No memory is taken then.
//   kUnimplemented: a sparse or quantised tensor.
//   kInternal: the state could not be copied, or a function of the State threw.
absl::StatusOr<std::shared_ptr<const Snapshot>> Capture(State& state);

// Fills `state` from a snapshot: of Capture, of StoreReader::Load, or of an evaluator. Of `options`, `only`, `renames`,
// `allow_missing` and `allow_unexpected` apply, as in a restore from disk; the others are for stores. Companions
// (averages) do not change. A checkpointer does not know of the rollback: it saves a committed step anew only with
// SaveOptions::overwrite. Call it on the thread that changes the state. If an overlapped save still reads the tensors,
// it waits for that first.
//
// Errors that leave the state as it was:
//   kInvalidArgument: the snapshot does not fit the state; one message lists every difference. Or two tensors share
//     memory in the state and differ in the snapshot. Or `accept` or `healthy_only` is set.
//   kInternal, kResourceExhausted: State::PrepareRestore threw, or there is no memory.
// Errors after which tensors may hold parts of the snapshot; their codes are the state's own:
//   - A tensor could not be written to its device. No value has changed.
//   - The `load` of an object failed (State::AddObject). All tensors and the earlier objects have the contents of the
//     snapshot. No value has changed.
absl::Status RestoreFrom(const Snapshot& snapshot, State& state, const RestoreOptions& options = {});

}  // namespace tidemark

#endif  // TIDEMARK_CAPTURE_H_
