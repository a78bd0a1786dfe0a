// What an exported safetensors file says of its step, in `__metadata__`: the keys, the text of the metrics, and how the
// metadata of a file is read back.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_METADATA_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_METADATA_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tidemark/step_info.h"

namespace tidemark {

using ExportMetadata = std::map<std::string, std::string>;

// The keys of an export. A file that has both kStepKey and kStoreKey is one.
inline constexpr std::string_view kFormatKey = "format";
inline constexpr std::string_view kStepKey = "tidemark.step";
inline constexpr std::string_view kStoreKey = "tidemark.store";                 // empty: the step is of no store
inline constexpr std::string_view kMetricsKey = "tidemark.metrics";             // as MetricsJson
inline constexpr std::string_view kUserMetadataKey = "tidemark.user_metadata";  // a JSON object
// This prefix and the name of a value is the key of the value's kind; with the name of a tied tensor, the key of
// kTiedKind. The name alone is the key of the value's text, or of the name of the tensor that it is tied to.
inline constexpr std::string_view kKindPrefix = "tidemark.kind.";
inline constexpr std::string_view kTiedKind = "tied";

// Metrics, and user metadata, of more bytes are not exported and not read: they are parsed as a whole.
inline constexpr size_t kStepTextBytesMax = 1 << 20;

// A JSON object on one line. A number that is not finite is the string "NaN", "Infinity" or "-Infinity".
std::string MetricsJson(const Metrics& metrics);

// The metadata of a safetensors file. kDataLoss: it is none. Other errors: it cannot be read.
absl::StatusOr<ExportMetadata> ReadExportMetadata(const std::string& path);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_METADATA_H_
