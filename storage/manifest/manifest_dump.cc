#include "storage/manifest/manifest_dump.h"

#include <memory>
#include <utility>

#include "fmt/format.h"
#include "storage/manifest/database.h"
#include "storage/manifest/index_keys.h"
#include "storage/records/best_modes.h"
#include "storage/records/manifest_records.h"
#include "storage/records/phases_record.h"

namespace tidemark::storage {
namespace {

absl::Status CheckStep(std::string_view key, const absl::StatusOr<StepRecord>& record) {
  if (!record.ok()) return record.status();
  if (StepKey(record->info.step) == key) return absl::OkStatus();
  return absl::DataLossError(fmt::format("a record of step {} is under another key", record->info.step));
}

absl::Status CheckDeletion(std::string_view key, const absl::StatusOr<DeletionRecord>& record) {
  if (!record.ok()) return record.status();
  if (DeletionKey(record->attempt) == key) return absl::OkStatus();
  return absl::DataLossError("a record of another attempt is under this key");
}

absl::Status CheckValue(std::string_view key, std::string_view value) {
  if (key == kStoreKey) return DecodeStoreRecord(value).status();
  if (key == kBestModesKey) return DecodeBestModes(value).status();
  if (key == kSettledKey) return DecodeSettledMark(value).status();
  if (key.starts_with(kStepKeyPrefix)) return CheckStep(key, DecodeStepRecord(value));
  if (key.starts_with(kDeletionKeyPrefix)) return CheckDeletion(key, DecodeDeletionRecord(value));
  if (key.starts_with(kPhasesKeyPrefix)) return DecodePhasesRecord(value).status();
  if (value.empty()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("a key of an index has a value, of {} bytes", value.size()));
}

// As far as the bytes of a key are also what KeyText makes of it.
std::string_view CommonPart(std::string_view prefix) {
  const size_t slash = prefix.find('/');
  return slash == std::string_view::npos ? prefix : prefix.substr(0, slash + 1);
}

}  // namespace

DumpedRecord DumpRecord(std::string_view key, std::string_view value) {
  DumpedRecord record{.key = std::string(key), .value = std::string(value)};
  absl::StatusOr<std::string> text = KeyText(key);
  record.status = text.ok() ? CheckValue(key, value) : text.status();
  if (text.ok()) record.key = *std::move(text);
  return record;
}

absl::Status DumpManifest(FileSystem& files, const std::string& path, std::string_view prefix,
                          absl::FunctionRef<bool(const DumpedRecord&)> visit) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::OpenReadOnly(files, path);
  if (!database.ok()) return database.status();
  absl::Status version;
  absl::Status scanned = (*database)->Scan(kStoreKey, [&](std::string_view key, std::string_view value) {
    if (key == kStoreKey) version = DecodeStoreRecord(value).status();
    return false;
  });
  if (!scanned.ok()) return scanned;
  if (absl::IsUnimplemented(version)) {
    return absl::UnimplementedError(fmt::format("manifest {}: {}", path, std::string(version.message())));
  }
  scanned = (*database)->Scan(CommonPart(prefix), [&](std::string_view key, std::string_view value) {
    const DumpedRecord record = DumpRecord(key, value);
    return !record.key.starts_with(prefix) || visit(record);
  });
  return scanned.ok() ? (*database)->log_damage() : scanned;
}

}  // namespace tidemark::storage
