// Guarded: the border between the library and its user's code. An exception from that code becomes an error of the
// call.

#ifndef TIDEMARK_SNAPSHOT_GUARDED_H_
#define TIDEMARK_SNAPSHOT_GUARDED_H_

#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/exception_status.h"

namespace tidemark {

namespace guarded_internal {

template <typename Result>
struct Outcome {
  using Type = absl::StatusOr<Result>;
};
template <>
struct Outcome<void> {
  using Type = absl::Status;
};
template <>
struct Outcome<absl::Status> {
  using Type = absl::Status;
};
template <typename Value>
struct Outcome<absl::StatusOr<Value>> {
  using Type = absl::StatusOr<Value>;
};

}  // namespace guarded_internal

// The result of `call`, an absl::Status or an absl::StatusOr. If it throws, ExceptionStatus. `what` names the call in
// the message: "State::Refresh".
template <typename Call>
auto Guarded(std::string_view what, Call&& call) ->
    typename guarded_internal::Outcome<std::invoke_result_t<Call>>::Type {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      std::forward<Call>(call)();
      return absl::OkStatus();
    } else {
      return std::forward<Call>(call)();
    }
  } catch (...) {
    return storage::ExceptionStatus(what);
  }
}

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_GUARDED_H_
