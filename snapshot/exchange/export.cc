#include "tidemark/export.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "snapshot/exchange/export_metadata.h"
#include "snapshot/exchange/export_plan.h"
#include "snapshot/exchange/export_sink.h"
#include "snapshot/exchange/value_text.h"
#include "snapshot/guarded.h"

namespace tidemark {
namespace {

// The entries as a step's index would list them.
std::vector<StoredEntry> Listed(const Snapshot& snapshot) {
  std::vector<StoredEntry> listed;
  absl::flat_hash_map<const std::byte*, size_t> first;
  for (size_t i = 0; i < snapshot.entries().size(); ++i) {
    const std::span<const std::byte> bytes = snapshot.bytes(i);
    StoredEntry entry{.spec = snapshot.entries()[i], .bytes = bytes.size()};
    if (entry.spec.kind == EntryKind::kTensor && !bytes.empty()) {
      const auto [other, is_first] = first.try_emplace(bytes.data(), i);
      // A reader of the file takes the other tensor as it is, so bytes with another meaning are written again.
      const EntrySpec& known = snapshot.entries()[other->second];
      if (!is_first && known.dtype == entry.spec.dtype && known.shape == entry.spec.shape) entry.tied_to = known.name;
    }
    listed.push_back(std::move(entry));
  }
  return listed;
}

// What can be refused before a step is read.
absl::Status Check(const std::string& path, const ExportOptions& options) {
  std::error_code ignored;
  if (!options.replace && std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    return absl::AlreadyExistsError(fmt::format("{} exists; ExportOptions::replace replaces a regular file", path));
  }
  if (!options.dtype || *options.dtype == Dtype::kFloat16 || *options.dtype == Dtype::kBfloat16 ||
      *options.dtype == Dtype::kFloat32 || *options.dtype == Dtype::kFloat64) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(fmt::format("dtype: expected float16, bfloat16, float32 or float64, found {}",
                                                GetDtypeInfo(*options.dtype).name));
}

absl::Status Write(const Snapshot& snapshot, std::string_view store, const Metrics& metrics, const std::string& path,
                   const ExportOptions& options) {
  const std::vector<StoredEntry> entries = Listed(snapshot);
  const absl::StatusOr<ExportPlan> plan = PlanExport(
      entries,
      {.dtype = options.dtype, .include = options.entries, .renames = options.renames, .shard_bytes = UINT64_MAX});
  if (!plan.ok()) return plan.status();
  ExportMetadata metadata = {{std::string(kFormatKey), "pt"},  // without which other libraries refuse the file
                             {std::string(kStepKey), fmt::format("{}", snapshot.step())},
                             {std::string(kStoreKey), std::string(store)}};
  const auto add_text = [&](std::string_view key, std::string text) {
    if (text.size() <= kStepTextBytesMax) metadata[std::string(key)] = std::move(text);
  };
  add_text(kMetricsKey, MetricsJson(metrics));
  add_text(kUserMetadataKey, snapshot.user_metadata());
  ExportMetadata values;
  for (const ExportItem& item : plan->values) {
    values[item.spec.name] = ValueText(item.spec, snapshot.bytes(item.entry));
  }
  const absl::StatusOr<std::unique_ptr<ExportSink>> sink =
      MakeSafetensorsSink(*plan, path, options.replace, metadata, std::move(values));
  if (!sink.ok()) return sink.status();
  for (const ExportItem& item : plan->tensors) {
    if (!item.tied_to.empty()) continue;
    absl::Status status = (*sink)->Begin(item);
    status.Update(WriteElements(**sink, entries[item.entry].spec.dtype, item.spec.dtype, snapshot.bytes(item.entry)));
    if (!status.ok()) return status;
  }
  return (*sink)->Commit().status();
}

}  // namespace

absl::Status ExportSafetensors(const Snapshot& snapshot, const std::string& path, const ExportOptions& options) {
  return Guarded("ExportSafetensors", [&] {
    absl::Status status = Check(path, options);
    return status.ok() ? Write(snapshot, /*store=*/"", snapshot.metrics(), path, options) : status;
  });
}

absl::StatusOr<int64_t> ExportSafetensors(StoreReader& store, const StepSelector& step, const std::string& path,
                                          const ExportOptions& options) {
  return Guarded("ExportSafetensors", [&]() -> absl::StatusOr<int64_t> {
    if (absl::Status status = Check(path, options); !status.ok()) return status;
    const absl::StatusOr<std::shared_ptr<const Snapshot>> snapshot = store.Load(step, options.entries);
    if (!snapshot.ok()) return snapshot.status();
    const absl::StatusOr<StepInfo> info = store.FindStep((*snapshot)->step());
    const absl::Status written =
        Write(**snapshot, store.store_id(), info.ok() ? info->metrics : (*snapshot)->metrics(), path, options);
    if (!written.ok()) return written;
    return (*snapshot)->step();
  });
}

}  // namespace tidemark
