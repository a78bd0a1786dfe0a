#include "storage/index/key_iteration.h"

#include <utility>
#include <variant>

#include "fmt/format.h"
#include "storage/index/index_keys.h"
#include "storage/records/fact.h"

namespace tidemark::storage {

absl::Status Located(const absl::Status& status, const std::string& path, std::string_view key) {
  return absl::Status(status.code(),
                      fmt::format("database {}, key '{}': {}", path, key, std::string(status.message())));
}

absl::StatusOr<StepRecord> DecodeStepValue(std::string_view bytes) {
  if (bytes.starts_with('{')) return DecodeStepRecord(bytes);
  absl::StatusOr<Fact> fact = DecodeFact(bytes);
  if (!fact.ok()) return fact.status();
  auto* const step = std::get_if<StepFact>(&*fact);
  if (step == nullptr) return absl::DataLossError("step record: it is another fact");
  return std::move(step->record);
}

absl::StatusOr<StepRecord> RecordAt(const rocksdb::Iterator& it, const std::string& path) {
  absl::StatusOr<StepRecord> record = DecodeStepValue(View(it.value()));
  if (!record.ok()) return Located(record.status(), path, "step/...");
  if (StepKey(record->info.step) != View(it.key())) {
    return absl::DataLossError(
        fmt::format("database {}: a record of step {} is under another key", path, record->info.step));
  }
  return record;
}

void SeekBest(rocksdb::Iterator& it, std::string_view metric, BestMode mode) {
  if (mode == BestMode::kHighest) {
    it.SeekForPrev(LastKeyOfMetric(metric));
    return;
  }
  const std::string prefix = MetricPrefix(metric);
  it.Seek(prefix);
  if (IsOn(it, prefix)) it.SeekForPrev(LastKeyOfValue(View(it.key())));
}

}  // namespace tidemark::storage
