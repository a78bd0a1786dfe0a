#include "snapshot/staging/staged_snapshot.h"

#include <algorithm>
#include <utility>

namespace tidemark {

EntrySpec StagedSnapshot::SpecOf(size_t index) const {
  EntrySpec spec = plan_->specs()[index];
  const bool sized = spec.kind != EntryKind::kTensor && plan_->placements()[index].sized_value >= 0;
  if (sized) spec.shape = {static_cast<int64_t>(PlaceOf(index).bytes)};
  return spec;
}

// A save does not pay for the copy, but only the first evaluator that looks at the entries.
std::span<const EntrySpec> StagedSnapshot::entries() const {
  const std::vector<EntrySpec>& planned = plan_->specs();
  std::call_once(specs_made_, [&] {
    const bool as_planned = std::all_of(plan_->sized_values().begin(), plan_->sized_values().end(), [&](size_t index) {
      return planned[index].shape.front() == static_cast<int64_t>(PlaceOf(index).bytes);
    });
    if (as_planned) return;
    std::vector<EntrySpec> specs;  // an exception leaves specs_ empty
    specs.reserve(planned.size());
    for (size_t i = 0; i < planned.size(); ++i) specs.push_back(SpecOf(i));
    specs_ = std::move(specs);
  });
  return specs_.empty() ? planned : specs_;
}

}  // namespace tidemark
