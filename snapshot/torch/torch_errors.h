// The edge where LibTorch's exceptions become Status. Thread-safe.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_ERRORS_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_ERRORS_H_

#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace tidemark {

// To be called in a catch block: the exception as kResourceExhausted if it is about memory, else kInternal. `what`
// ("entry 'model.weight'") begins the message.
absl::Status StatusOfException(std::string_view what);

// Runs `work`, which returns a Status; what it throws becomes one.
template <typename Work>
absl::Status CatchTorch(std::string_view what, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    return StatusOfException(what);
  }
}

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_ERRORS_H_
