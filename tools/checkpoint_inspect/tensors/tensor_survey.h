// The statistics of the tensors of a source.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_SURVEY_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_SURVEY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/checkpoint_inspect/cli/console.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"
#include "tools/checkpoint_inspect/tensors/tensor_statistics.h"

namespace tidemark::inspect {

struct SurveyedEntries {
  static constexpr size_t kUnread = SIZE_MAX;
  std::vector<TensorStatistics> read;  // once for the same bytes and dtype
  std::vector<size_t> place_of;        // of each entry that was asked for: in `read`, or kUnread

  // Null where the entry has no numbers.
  const TensorStatistics* Of(size_t i) const { return place_of[i] == kUnread ? nullptr : &read[place_of[i]]; }
};

// Of each of these entries what its numbers are like, if it has any (text, blobs and bits have none). Streams them with
// a progress line; what is tied, or has the same dtype and digest as another one, is read once. Errors as of
// StreamTensors.
absl::StatusOr<SurveyedEntries> Survey(const TensorSource& source, std::span<const size_t> entries, Console& console);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_SURVEY_H_
