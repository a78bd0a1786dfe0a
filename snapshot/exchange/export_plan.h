// What an export consists of, before a byte of it is read. No I/O.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_PLAN_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/entry.h"
#include "tidemark/step_reader.h"

namespace tidemark {

enum class ExportFormat { kSafetensors, kNpz, kRaw };

// "safetensors", "npz", "raw"
std::string_view ExportFormatName(ExportFormat format);
std::optional<ExportFormat> ParseExportFormat(std::string_view name);

struct ExportPlanOptions {
  ExportFormat format = ExportFormat::kSafetensors;
  std::optional<Dtype> dtype;        // of floating-point tensors; see CanConvertFloats
  std::vector<std::string> include;  // patterns as GlobMatches has them; none: everything
  std::vector<std::string> exclude;
  // As RestoreOptions::renames; to the empty name, it takes the dot behind it as well.
  std::vector<std::pair<std::string, std::string>> renames;
  uint64_t shard_bytes = 5'000'000'000;  // of tensors in one file, unless it is one tensor alone; kSafetensors
};

struct ExportItem {
  size_t entry = 0;  // of the source
  EntrySpec spec;    // as it is exported: name and dtype
  uint64_t bytes = 0;
  std::string tied_to;  // the item of that name, before it, has the very same bytes; empty: none
  size_t file = 0;      // of ExportPlan::files
};

struct ExportPlan {
  // Those that become tensors, file by file, and in kSafetensors the widest numbers first, so that each begins at a
  // multiple of its width.
  std::vector<ExportItem> tensors;
  // What becomes text in the metadata of kSafetensors, which has no place for anything but tensors.
  std::vector<ExportItem> values;
  size_t files = 1;
  uint64_t tensor_bytes = 0;  // of all tensors that are written
};

// Of the tied ones among them, kSafetensors leaves out all but the first, kRaw writes the first, kNpz writes each.
// kInvalidArgument: a pattern or a rename fits nothing, names collide, an entry is stored in parts,
// the format has no such dtype, a value is too large for metadata, or there would be too many files. The
// message names the entry and the way out.
absl::StatusOr<ExportPlan> PlanExport(std::span<const StoredEntry> entries, const ExportPlanOptions& options);

// The most files that an export has open at once.
inline constexpr size_t kExportFilesMax = 512;

// A value that is put into metadata has at most so many bytes.
inline constexpr uint64_t kMetadataValueBytesMax = 1 << 20;

// A name that is a file's in every folder, whatever the store calls the entry: bytes that are not printable ASCII, the
// space, '/', '\', '%', '~', what some file systems refuse (: * ? " < > |) and a leading dot become % and two digits.
// Names that are long are cut, with '~' and `number` behind them; so different names with different numbers stay
// different.
std::string SafeFileName(std::string_view name, size_t number);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_PLAN_H_
