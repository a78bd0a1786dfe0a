// Tags, which the trainer sets on the housekeeping thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "storage/records/tag.h"

namespace tidemark {
namespace {

// The steps that have the tag, except those whose files are gone.
absl::StatusOr<std::vector<int64_t>> StepsTagged(const storage::StepCatalog& catalog, std::string_view name) {
  std::vector<int64_t> steps;
  absl::Status status = catalog.ForEach([&](const storage::StepRecord& record) {
    if (record.info.state != StepState::kDeleted && storage::HasTag(record.info.tags, name)) {
      steps.push_back(record.info.step);
    }
    return true;
  });
  if (!status.ok()) return status;
  return steps;
}

}  // namespace

absl::Status Housekeeper::Tag(int64_t step, std::string_view name) {
  return Run([&](storage::Store& store) { return store.Tag(step, name); });
}

absl::Status Housekeeper::Untag(std::string_view name) {
  return Run([&](storage::Store& store) -> absl::Status {
    // Without a report it only brings the catalog up to date: another process may have moved the tag just now.
    if (absl::Status fresh = store.RecordReports({}).status(); !fresh.ok()) return fresh;
    const absl::StatusOr<std::vector<int64_t>> tagged = StepsTagged(store.catalog(), name);
    if (!tagged.ok()) return tagged.status();
    if (tagged->empty()) return absl::NotFoundError(fmt::format("no step has the tag '{}'", name));
    absl::Status first;
    for (const int64_t step : *tagged) first.Update(store.Untag(step, name));
    return first;
  });
}

}  // namespace tidemark
