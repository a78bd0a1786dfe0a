// The scrub of an AsyncCheckpointer: what it reads, and what follows from damage.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/checkpointer_impl.h"
#include "storage/records/manifest_records.h"

namespace tidemark {
namespace {

constexpr size_t kStepsNamedMax = 10;

// Whether a restore of the step reads this file.
bool Needs(const storage::StepRecord& record, const storage::FileReference& file) {
  if (record.info.state != StepState::kCommitted) return false;
  if (record.info.step == file.step && record.info.attempt == storage::ToHex(file.attempt.bytes)) return true;
  return std::find(record.references.begin(), record.references.end(), file) != record.references.end();
}

// The place, the committed steps that need the file, and what to do.
std::string WarningOf(const storage::ChunkDamage& damage, const storage::StepCatalog& catalog) {
  std::vector<int64_t> steps;
  size_t more = 0;
  const absl::Status listed = catalog.ForEach([&](const storage::StepRecord& record) {
    if (!Needs(record, damage.file)) return true;
    if (steps.size() < kStepsNamedMax) {
      steps.push_back(record.info.step);
    } else {
      ++more;
    }
    return true;
  });
  std::string readers = listed.ok() ? fmt::format("{}", fmt::join(steps, ", ")) : std::string(listed.message());
  if (more > 0) readers += fmt::format(" and {} more", more);
  return fmt::format(
      "the scrub found damage in {}: {}. Committed steps that need this file: {}. The next save writes every "
      "chunk. Run checkpoint-inspect verify to see which of these steps can still be restored, and check the disk",
      damage.entry.empty() ? "an index" : fmt::format("entry '{}'", damage.entry), damage.what, readers);
}

}  // namespace

absl::Status AsyncCheckpointer::Impl::StartScrubber() {
  if (!options.reuse || options.tuning.scrub_bytes_per_second_max == 0) return absl::OkStatus();
  if (ranked_attempts != nullptr) return absl::OkStatus();  // thousands of ranks would keep a file server busy
  const auto on_damage = [this](const storage::ChunkDamage& damage) {
    persister->ForgetCommitted();  // first, since the warning needs memory
    listeners.Warn(WarningOf(damage, store->catalog()));
  };
  auto started = Scrubber::Start({.files = files_owner,
                                  .steps_directory = store->layout().steps(),
                                  .is_writing = [this] { return persister->is_writing(); },
                                  .reusable = [this] { return persister->Reusable(); },
                                  .on_damage = on_damage},
                                 {.bytes_per_second_max = options.tuning.scrub_bytes_per_second_max,
                                  .nice = options.tuning.background_nice,
                                  .pass_interval = scrub_pass_interval});
  if (!started.ok()) return started.status();
  scrubber = *std::move(started);
  return absl::OkStatus();
}

}  // namespace tidemark
