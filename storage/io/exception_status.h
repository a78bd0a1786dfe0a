// Exceptions at borders that none may pass: threads of ours, destructors, and calls that return a status. Most are
// std::bad_alloc, which every allocation may throw.

#ifndef TIDEMARK_STORAGE_IO_EXCEPTION_STATUS_H_
#define TIDEMARK_STORAGE_IO_EXCEPTION_STATUS_H_

#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

namespace tidemark::storage {

// Converts the current exception into an error of `subject`, a callback or a piece of work, followed by a space and
// `object`. Called in a catch clause. Throws nothing.
//
// - kResourceExhausted: std::bad_alloc. The message is empty if there is no memory for one.
// - kInternal: any other exception, with its message.
absl::Status ExceptionStatus(std::string_view subject, std::string_view object = {}) noexcept;

// Does work that is optional, such as a warning, where no exception may pass. An exception ends the work and is
// dropped. Clang's analysis does not see that the caller's locks are held in `work`.
template <typename Work>
void BestEffort(Work&& work) noexcept ABSL_NO_THREAD_SAFETY_ANALYSIS {
  try {
    work();
  } catch (...) {
  }
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_EXCEPTION_STATUS_H_
