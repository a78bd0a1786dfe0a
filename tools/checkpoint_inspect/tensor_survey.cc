#include "tools/checkpoint_inspect/tensor_survey.h"

#include <map>
#include <string_view>
#include <utility>

#include "tools/checkpoint_inspect/progress_line.h"
#include "tools/checkpoint_inspect/tensor_numbers.h"
#include "tools/checkpoint_inspect/tensor_stream.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {

absl::StatusOr<std::vector<std::optional<TensorStatistics>>> Survey(const TensorSource& source,
                                                                    std::span<const size_t> entries, Console& console) {
  constexpr size_t kUnread = SIZE_MAX;
  Lane lane{.source = &source, .entries = {}};
  std::vector<size_t> item_of(entries.size(), kUnread);  // what is read for each entry
  std::map<std::pair<std::string_view, Dtype>, size_t> known;
  uint64_t bytes_total = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const StoredEntry& entry = source.entries()[entries[i]];
    if (NumbersPerElement(entry.spec) == 0) continue;
    item_of[i] = lane.entries.size();
    if (!entry.digest.empty()) {
      const auto [place, is_new] = known.try_emplace({entry.digest, entry.spec.dtype}, item_of[i]);
      item_of[i] = place->second;
      if (!is_new) continue;
    }
    lane.entries.push_back(entries[i]);
    bytes_total += entry.bytes;
  }

  std::vector<TensorStatistics> read(lane.entries.size());
  ProgressLine line(console, bytes_total);
  uint64_t bytes_done = 0;
  const absl::Status status = StreamTensors({&lane, 1}, [&](const TensorBlock& block) {
    const EntrySpec& spec = source.entries()[lane.entries[block.item]].spec;
    read[block.item].Add(spec.dtype, block.bytes[0]);
    bytes_done += block.bytes[0].size();
    line.Update(Shorten(Escape(spec.name), ProgressLine::kNameColumnsMax), bytes_done);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;

  std::vector<std::optional<TensorStatistics>> statistics(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (item_of[i] != kUnread) statistics[i] = read[item_of[i]];
  }
  return statistics;
}

}  // namespace tidemark::inspect
