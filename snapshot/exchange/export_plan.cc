#include "snapshot/exchange/export_plan.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "snapshot/exchange/float_conversion.h"
#include "snapshot/exchange/npy_format.h"
#include "snapshot/exchange/safetensors_header.h"
#include "snapshot/glob.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

using storage::PrintableText;

bool MatchesAny(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return GlobMatches(pattern, name); });
}

absl::Status CheckPatterns(std::span<const StoredEntry> entries, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (std::none_of(entries.begin(), entries.end(),
                     [&](const StoredEntry& entry) { return GlobMatches(pattern, entry.spec.name); })) {
      return absl::InvalidArgumentError(
          fmt::format("the pattern '{}' matches no entry of the step", PrintableText(pattern)));
    }
  }
  return absl::OkStatus();
}

std::string NameFor(std::string_view name, const std::vector<std::pair<std::string, std::string>>& renames) {
  for (const auto& rename : renames) {
    if (!IsRenamedBy(name, rename)) continue;
    const size_t cut = rename.first.size() + (rename.second.empty() && name.size() > rename.first.size() ? 1 : 0);
    return rename.second + std::string(name.substr(cut));
  }
  return std::string(name);
}

// The entries that are wanted, one of each name.
absl::StatusOr<std::vector<size_t>> Select(std::span<const StoredEntry> entries, const ExportPlanOptions& options) {
  absl::Status status = CheckPatterns(entries, options.include);
  status.Update(CheckPatterns(entries, options.exclude));
  if (!status.ok()) return status;
  std::vector<size_t> selected;
  absl::flat_hash_map<std::string_view, size_t> first;  // by name
  for (size_t i = 0; i < entries.size(); ++i) {
    const StoredEntry& entry = entries[i];
    if (!options.include.empty() && !MatchesAny(options.include, entry.spec.name)) continue;
    if (MatchesAny(options.exclude, entry.spec.name)) continue;
    const auto [held, is_first] = first.try_emplace(entry.spec.name, i);
    // What every rank has, in the same bytes, is there as often as there are ranks.
    const bool is_copy = !is_first && !entry.digest.empty() && entry.digest == entries[held->second].digest;
    if (!entry.spec.whole() || (!is_first && !is_copy)) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' is stored in parts, which export cannot join; exclude it", PrintableText(entry.spec.name)));
    }
    if (is_first) selected.push_back(i);
  }
  if (selected.empty()) return absl::InvalidArgumentError("nothing is left to export");
  for (const auto& rename : options.renames) {
    if (std::none_of(selected.begin(), selected.end(),
                     [&](size_t i) { return IsRenamedBy(entries[i].spec.name, rename); })) {
      return absl::InvalidArgumentError(
          fmt::format("renames: no entry that is exported is called '{}' or begins with '{}.'",
                      PrintableText(rename.first), PrintableText(rename.first)));
    }
  }
  return selected;
}

absl::StatusOr<ExportItem> MakeItem(const StoredEntry& entry, size_t index, const ExportPlanOptions& options) {
  ExportItem item{.entry = index, .spec = entry.spec, .bytes = entry.bytes};
  item.spec.name = NameFor(entry.spec.name, options.renames);
  if (item.spec.name.empty()) {
    return absl::InvalidArgumentError(fmt::format("renames give '{}' an empty name", PrintableText(entry.spec.name)));
  }
  if (options.dtype && entry.spec.kind == EntryKind::kTensor && CanConvertFloats(entry.spec.dtype, *options.dtype)) {
    item.spec.dtype = *options.dtype;
    item.bytes =
        entry.bytes / GetDtypeInfo(entry.spec.dtype).element_bytes * GetDtypeInfo(*options.dtype).element_bytes;
  }
  return item;
}

absl::Status CheckNames(const std::vector<ExportItem>& items, std::span<const StoredEntry> entries) {
  absl::flat_hash_map<std::string_view, size_t> names;
  for (const ExportItem& item : items) {
    const auto [other, is_new] = names.try_emplace(item.spec.name, item.entry);
    if (is_new) continue;
    return absl::InvalidArgumentError(
        fmt::format("renames give '{}' and '{}' the same name '{}'", PrintableText(entries[other->second].spec.name),
                    PrintableText(entries[item.entry].spec.name), PrintableText(item.spec.name)));
  }
  return absl::OkStatus();
}

// Sets what each item is tied to: the first of those that are exported.
void SetTies(std::span<const StoredEntry> entries, std::vector<ExportItem>* items) {
  absl::flat_hash_map<std::string_view, std::string_view> roots;  // of tied entries that were seen
  const auto root_of = [&](const StoredEntry& entry) -> std::string_view {
    const std::string_view direct = entry.tied_to.empty() ? entry.spec.name : entry.tied_to;
    const auto found = roots.find(direct);
    return found == roots.end() ? direct : found->second;
  };
  for (const StoredEntry& entry : entries) {
    if (!entry.tied_to.empty()) roots[entry.spec.name] = root_of(entry);
  }
  absl::flat_hash_map<std::string_view, const ExportItem*> first;
  for (ExportItem& item : *items) {
    const auto [kept, is_first] = first.try_emplace(root_of(entries[item.entry]), &item);
    if (!is_first) item.tied_to = kept->second->spec.name;
  }
}

absl::Status CheckFormat(const ExportItem& item, ExportFormat format) {
  const bool has_dtype =
      format == ExportFormat::kRaw ||
      !(format == ExportFormat::kNpz ? NumpyDtype(item.spec.dtype) : SafetensorsDtypeName(item.spec.dtype)).empty();
  if (has_dtype) return absl::OkStatus();
  const bool can_convert = CanConvertFloats(item.spec.dtype, Dtype::kFloat32);
  return absl::InvalidArgumentError(
      fmt::format("{} has no dtype for '{}' of {}; {}", format == ExportFormat::kNpz ? "numpy" : "safetensors",
                  PrintableText(item.spec.name), GetDtypeInfo(item.spec.dtype).name,
                  can_convert ? "dtype float32 converts it" : "exclude it, or export it as raw"));
}

// Files are filled in the order of the entries; a tensor that is larger than a file may be has one for itself.
absl::Status AssignFiles(const ExportPlanOptions& options, ExportPlan* plan) {
  plan->files = 1;
  if (options.format != ExportFormat::kSafetensors) return absl::OkStatus();
  uint64_t filled = 0;
  for (ExportItem& item : plan->tensors) {
    const uint64_t bytes = item.tied_to.empty() ? item.bytes : 0;
    if (filled > 0 && bytes > options.shard_bytes - std::min(filled, options.shard_bytes)) {
      ++plan->files;
      filled = 0;
    }
    filled += bytes;
    item.file = plan->files - 1;
  }
  if (plan->files > kExportFilesMax) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes a file make {} files, more than {}", options.shard_bytes, plan->files, kExportFilesMax));
  }
  std::stable_sort(plan->tensors.begin(), plan->tensors.end(), [](const ExportItem& a, const ExportItem& b) {
    const auto key = [](const ExportItem& item) {
      return std::pair(item.file, -int{GetDtypeInfo(item.spec.dtype).element_bytes});
    };
    return key(a) < key(b);
  });
  return absl::OkStatus();
}

}  // namespace

std::string_view ExportFormatName(ExportFormat format) {
  switch (format) {
    case ExportFormat::kSafetensors:
      return "safetensors";
    case ExportFormat::kNpz:
      return "npz";
    case ExportFormat::kRaw:
      return "raw";
  }
  return "";
}

std::optional<ExportFormat> ParseExportFormat(std::string_view name) {
  for (const ExportFormat format : {ExportFormat::kSafetensors, ExportFormat::kNpz, ExportFormat::kRaw}) {
    if (name == ExportFormatName(format)) return format;
  }
  return std::nullopt;
}

absl::StatusOr<ExportPlan> PlanExport(std::span<const StoredEntry> entries, const ExportPlanOptions& options) {
  const absl::StatusOr<std::vector<size_t>> selected = Select(entries, options);
  if (!selected.ok()) return selected.status();
  std::vector<ExportItem> items;
  items.reserve(selected->size());
  for (const size_t index : *selected) {
    absl::StatusOr<ExportItem> item = MakeItem(entries[index], index, options);
    if (!item.ok()) return item.status();
    items.push_back(*std::move(item));
  }
  if (absl::Status status = CheckNames(items, entries); !status.ok()) return status;
  SetTies(entries, &items);
  ExportPlan plan;
  uint64_t values_bytes = 0;
  const auto is_value = [&](const ExportItem& item) {
    return options.format == ExportFormat::kSafetensors && item.spec.kind != EntryKind::kTensor;
  };
  for (ExportItem& item : items) {
    if (is_value(item)) {
      if (item.bytes > kMetadataValueBytesMax) {
        return absl::InvalidArgumentError(
            fmt::format("'{}' has {} bytes, more than the {} that a value may have in the metadata of safetensors; "
                        "exclude it, or export it as raw",
                        PrintableText(item.spec.name), item.bytes, kMetadataValueBytesMax));
      }
      values_bytes += item.bytes;
      if (values_bytes > kSafetensorsHeaderBytesMax) {
        return absl::InvalidArgumentError(
            fmt::format("the values up to '{}' have {} bytes, more than the {} that the metadata of safetensors may "
                        "have; exclude some, or export them as raw",
                        PrintableText(item.spec.name), values_bytes, kSafetensorsHeaderBytesMax));
      }
      plan.values.push_back(item);
      continue;
    }
    if (absl::Status status = CheckFormat(item, options.format); !status.ok()) return status;
    if (options.format == ExportFormat::kNpz) item.tied_to.clear();
    if (item.tied_to.empty()) plan.tensor_bytes += item.bytes;
  }
  std::erase_if(items, is_value);
  plan.tensors = std::move(items);
  if (absl::Status status = AssignFiles(options, &plan); !status.ok()) return status;
  return plan;
}

std::string SafeFileName(std::string_view name, size_t number) {
  constexpr size_t kBytesMax = 180;
  constexpr std::string_view kEncoded = "/\\%~:*?\"<>|";
  std::string safe;
  for (const char c : name) {
    const bool is_plain = c > ' ' && c < 0x7f && kEncoded.find(c) == std::string_view::npos;
    if (is_plain && !(safe.empty() && c == '.')) {
      safe += c;
    } else {
      safe += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  if (safe.size() <= kBytesMax) return safe;
  return fmt::format("{}~{}", safe.substr(0, kBytesMax), number);
}

}  // namespace tidemark
