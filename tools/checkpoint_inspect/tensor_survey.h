// The statistics of the tensors of a source.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSOR_SURVEY_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSOR_SURVEY_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/checkpoint_inspect/console.h"
#include "tools/checkpoint_inspect/tensor_source.h"
#include "tools/checkpoint_inspect/tensor_statistics.h"

namespace tidemark::inspect {

// Of each of these entries what its numbers are like, nullopt where it has none (text, blobs, bits). Streams them with
// a progress line; what is tied, or has the same dtype and digest as another one, is read once. Errors as of
// StreamTensors.
absl::StatusOr<std::vector<std::optional<TensorStatistics>>> Survey(const TensorSource& source,
                                                                    std::span<const size_t> entries, Console& console);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSOR_SURVEY_H_
