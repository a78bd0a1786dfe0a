// ResolvedFuture: a future that has its result already. GuardedFuture: the future of a call, or the call's exception.

#ifndef TIDEMARK_SNAPSHOT_RESOLVED_FUTURE_H_
#define TIDEMARK_SNAPSHOT_RESOLVED_FUTURE_H_

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/guarded.h"
#include "tidemark/future.h"

namespace tidemark {

inline Future ResolvedFuture(absl::Status status) {
  Promise promise;
  Future future = promise.future();
  promise.Set(std::move(status));
  return future;
}

// The future that `call` returns. If it throws, the result is ExceptionStatus, as Guarded has it.
template <typename Call>
Future GuardedFuture(std::string_view what, Call&& call) {
  absl::StatusOr<Future> future = Guarded(what, std::forward<Call>(call));
  return future.ok() ? *std::move(future) : ResolvedFuture(future.status());
}

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESOLVED_FUTURE_H_
