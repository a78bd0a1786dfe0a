#include "tools/checkpoint_inspect/report/survey_plan.h"

#include <algorithm>
#include <charconv>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"

namespace tidemark::inspect {
namespace {

uint64_t HexNumber(std::string_view digits) {
  uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

// The name comes last, since there may be anything in it.
std::string KeyOf(const EntrySpec& spec) {
  return fmt::format("{} {} {} {} {}", static_cast<int>(spec.dtype), fmt::join(spec.shape, ","),
                     fmt::join(spec.box_offset, ","), fmt::join(spec.box_extent, ","), spec.name);
}

}  // namespace

std::vector<size_t> SampleEvenly(size_t count, size_t count_max) {
  std::vector<size_t> chosen;
  if (count <= count_max) {
    for (size_t i = 0; i < count; ++i) chosen.push_back(i);
    return chosen;
  }
  for (size_t i = 0; i < count_max; ++i) chosen.push_back(i * (count - 1) / (count_max - 1));
  return chosen;
}

void TensorInventory::AddStep(int64_t step, std::span<const StoredEntry> entries) {
  steps_.push_back(step);
  std::vector<Held>& held = held_.emplace_back(tensors_.size());
  others_ = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const StoredEntry& entry = entries[i];
    if (!entry.tied_to.empty()) continue;
    if (entry.spec.kind != EntryKind::kTensor || !IsFloat(entry.spec.dtype)) {
      ++others_;
      continue;
    }
    const auto [found, is_new] = tensor_of_.try_emplace(KeyOf(entry.spec), tensors_.size());
    if (is_new) {
      tensors_.push_back({.name = entry.spec.name, .dtype = entry.spec.dtype, .bytes = entry.bytes});
      held.emplace_back();
    }
    Held& here = held[found->second];
    here.entry = static_cast<uint32_t>(i);
    const std::string_view digest = entry.digest;
    here.digest[0] = HexNumber(digest.substr(0, 16));
    here.digest[1] = HexNumber(digest.substr(std::min<size_t>(16, digest.size())));
  }
}

const TensorInventory::Held& TensorInventory::At(size_t step, size_t tensor) const {
  static const Held absent;
  return tensor < held_[step].size() ? held_[step][tensor] : absent;
}

SurveyPlan PlanSurvey(const TensorInventory& inventory, uint64_t bytes_max) {
  SurveyPlan plan;
  if (inventory.steps().empty()) return plan;
  std::vector<size_t> by_size(inventory.tensors().size());
  for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  const auto bytes_of = [&](size_t tensor) { return inventory.tensors()[tensor].bytes; };
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return bytes_of(a) < bytes_of(b); });

  const size_t last = inventory.steps().size() - 1;
  for (const size_t tensor : by_size) {
    if (!inventory.At(last, tensor).present()) continue;
    if (bytes_of(tensor) > bytes_max / 2 - plan.bytes) {
      plan.bytes_last_left_out += bytes_of(tensor);
      continue;
    }
    plan.bytes += bytes_of(tensor);
    plan.last.push_back(tensor);
  }
  for (size_t first = last; first-- > 0;) {
    SurveyPlan::Pair pair{.first = first, .tensors = {}};
    uint64_t left_out = 0;
    for (const size_t tensor : by_size) {
      const TensorInventory::Held& a = inventory.At(first, tensor);
      const TensorInventory::Held& b = inventory.At(first + 1, tensor);
      if (!a.present() || !b.present() || a.SameBytes(b)) continue;
      const uint64_t bytes = 2 * bytes_of(tensor);
      if (bytes > bytes_max - plan.bytes) {
        left_out += bytes;
        continue;
      }
      plan.bytes += bytes;
      pair.tensors.push_back(tensor);
    }
    plan.bytes_pairs_left_out += left_out;
    plan.pairs_cut += left_out > 0 ? 1 : 0;
    if (!pair.tensors.empty()) plan.pairs.push_back(std::move(pair));
  }
  // In the order in which they lie in the files.
  std::sort(plan.last.begin(), plan.last.end());
  for (SurveyPlan::Pair& pair : plan.pairs) std::sort(pair.tensors.begin(), pair.tensors.end());
  return plan;
}

}  // namespace tidemark::inspect
