// The edge where LibTorch's exceptions become Status. Thread-safe.

#ifndef TIDEMARK_SNAPSHOT_TORCH_ERRORS_H_
#define TIDEMARK_SNAPSHOT_TORCH_ERRORS_H_

#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "c10/util/Exception.h"
#include "fmt/format.h"

namespace tidemark {

// Runs `work`, which returns a Status. `what` ("entry 'model.weight'") begins the message of what it throws:
// kResourceExhausted for memory, kInternal for the rest.
template <typename Work>
absl::Status CatchTorch(std::string_view what, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(fmt::format("{}: LibTorch: {}", what, error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::InternalError(fmt::format("{}: LibTorch: {}", what, error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(fmt::format("{}: out of memory", what));
  } catch (const std::exception& error) {
    return absl::InternalError(fmt::format("{}: {}", what, error.what()));
  }
}

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_ERRORS_H_
