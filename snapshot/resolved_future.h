// A future whose result is there already.

#ifndef TIDEMARK_SNAPSHOT_RESOLVED_FUTURE_H_
#define TIDEMARK_SNAPSHOT_RESOLVED_FUTURE_H_

#include <utility>

#include "absl/status/status.h"
#include "tidemark/future.h"

namespace tidemark {

inline Future ResolvedFuture(absl::Status status) {
  Promise promise;
  Future future = promise.future();
  promise.Set(std::move(status));
  return future;
}

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESOLVED_FUTURE_H_
