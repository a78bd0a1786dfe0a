#include "storage/manifest/step_batch.h"

#include <set>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "storage/manifest/index_keys.h"

namespace tidemark::storage {

absl::StatusOr<StepInfo> PutStep(rocksdb::WriteBatch& batch, const std::optional<StepRecord>& old,
                                 const StepRecord& record) {
  const std::string encoded = EncodeStepRecord(record);
  absl::StatusOr<StepRecord> as_read = DecodeStepRecord(encoded);
  if (!as_read.ok()) {
    return absl::InvalidArgumentError(fmt::format("the record of step {} is not written, for it could not be read: {}",
                                                  record.info.step, std::string(as_read.status().message())));
  }
  batch.Put(StepKey(record.info.step), encoded);
  const std::set<std::string> keys = IndexKeys(*as_read);
  const std::set<std::string> old_keys = old ? IndexKeys(*old) : std::set<std::string>();
  for (const std::string& key : old_keys) {
    if (!keys.contains(key)) batch.Delete(key);
  }
  for (const std::string& key : keys) {
    if (!old_keys.contains(key)) batch.Put(key, "");
  }
  return std::move(as_read->info);
}

}  // namespace tidemark::storage
