// Matchers for absl::Status and absl::StatusOr.

#ifndef TIDEMARK_TESTS_STORAGE_IO_STATUS_MATCHERS_H_
#define TIDEMARK_TESTS_STORAGE_IO_STATUS_MATCHERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"

namespace tidemark::storage {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }

template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is an error" : "is ok") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// A status of this code whose message is matched too: StatusIs(absl::StatusCode::kNotFound, HasSubstr("run/x")).
MATCHER_P2(StatusIs, code, message, "is a status of that code and message") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code && testing::ExplainMatchResult(message, std::string(status.message()), result_listener);
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_STATUS_MATCHERS_H_
