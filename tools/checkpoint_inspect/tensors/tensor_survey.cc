#include "tools/checkpoint_inspect/tensors/tensor_survey.h"

#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"
#include "tools/checkpoint_inspect/tensors/tensor_stream.h"

namespace tidemark::inspect {

absl::StatusOr<SurveyedEntries> Survey(const TensorSource& source, std::span<const size_t> entries, Console& console) {
  Lane lane{.source = &source, .entries = {}};
  SurveyedEntries surveyed;
  surveyed.place_of.assign(entries.size(), SurveyedEntries::kUnread);
  absl::flat_hash_map<std::pair<std::string_view, Dtype>, size_t> known;
  uint64_t bytes_total = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const StoredEntry& entry = source.entries()[entries[i]];
    if (NumbersPerElement(entry.spec) == 0) continue;
    size_t& place = surveyed.place_of[i];
    place = lane.entries.size();
    if (!entry.digest.empty()) {
      const std::pair<std::string_view, Dtype> bytes(entry.digest, entry.spec.dtype);
      const auto [first, is_new] = known.try_emplace(bytes, place);
      place = first->second;
      if (!is_new) continue;
    }
    lane.entries.push_back(entries[i]);
    bytes_total += entry.bytes;
  }

  known = {};
  surveyed.read.resize(lane.entries.size());
  ProgressLine line(console, bytes_total);
  uint64_t bytes_done = 0;
  const absl::Status status = StreamTensors({&lane, 1}, [&](const TensorBlock& block) {
    const EntrySpec& spec = source.entries()[lane.entries[block.item]].spec;
    surveyed.read[block.item].Add(spec.dtype, block.bytes[0]);
    bytes_done += block.bytes[0].size();
    line.Update(Shorten(Escape(spec.name), ProgressLine::kNameColumnsMax), bytes_done);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return surveyed;
}

}  // namespace tidemark::inspect
