// ClosedError: what a checkpointer, and its housekeeper, answer once they are closed.

#ifndef TIDEMARK_SNAPSHOT_CLOSED_ERROR_H_
#define TIDEMARK_SNAPSHOT_CLOSED_ERROR_H_

#include "absl/status/status.h"

namespace tidemark {

inline absl::Status ClosedError() { return absl::FailedPreconditionError("the checkpointer has been closed"); }

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CLOSED_ERROR_H_
