// What a survey of the tensors of many steps has to read, worked out from the steps' indices alone. Pure.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_SURVEY_PLAN_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_SURVEY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tidemark/step_reader.h"

namespace tidemark::inspect {

// At most `count_max` (>= 2) of `count` things, evenly chosen, the first and the last among them; ascending.
std::vector<size_t> SampleEvenly(size_t count, size_t count_max);

// The floating-point tensors of some steps. A tensor is one of a name, dtype, shape and held box; one that is tied to
// another is left out, for it has the other's bytes.
class TensorInventory {
 public:
  struct Tensor {
    std::string name;
    Dtype dtype = Dtype::kFloat32;
    uint64_t bytes = 0;
  };
  // A tensor in a step.
  struct Held {
    static constexpr uint32_t kAbsent = UINT32_MAX;
    uint32_t entry = kAbsent;  // into the step's entries
    uint64_t digest[2] = {0, 0};

    bool present() const { return entry != kAbsent; }
    // Of two that are present: their bytes are the same.
    bool SameBytes(const Held& other) const { return digest[0] == other.digest[0] && digest[1] == other.digest[1]; }
  };

  // Steps are added in ascending order.
  void AddStep(int64_t step, std::span<const StoredEntry> entries);
  // No more are added: lets go of what only that needs.
  void EndSteps() { tensor_of_ = {}; }

  const std::vector<int64_t>& steps() const { return steps_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Held& At(size_t step, size_t tensor) const;
  // Of the last step: entries that are no floating-point tensors; those that are tied count as neither.
  size_t others() const { return others_; }

 private:
  std::vector<int64_t> steps_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, size_t> tensor_of_;
  std::vector<std::vector<Held>> held_;  // by step, then by tensor; a step knows none of those first seen later
  size_t others_ = 0;
};

struct SurveyPlan {
  struct Pair {
    size_t first = 0;             // the steps `first` and `first + 1`
    std::vector<size_t> tensors;  // to read of both
  };
  std::vector<size_t> last;  // tensors to read of the last step
  std::vector<Pair> pairs;   // the latest first
  uint64_t bytes = 0;        // all that is to be read
  uint64_t bytes_last_left_out = 0;
  uint64_t bytes_pairs_left_out = 0;
  size_t pairs_cut = 0;  // pairs of which something was left out
};

// Reads tensors of the last step with at most half of `bytes_max`, the smallest first, and then of each pair of
// neighbours, the latest first, those whose bytes differ, the smallest first, as long as they fit.
SurveyPlan PlanSurvey(const TensorInventory& inventory, uint64_t bytes_max);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_SURVEY_PLAN_H_
