#include "snapshot/exchange/export_metadata.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <span>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "snapshot/exchange/safetensors_header.h"
#include "storage/io/errno_status.h"
#include "storage/io/link_free_path.h"

namespace tidemark {
namespace {

nlohmann::json NumberOrText(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

}  // namespace

std::string MetricsJson(const Metrics& metrics) {
  // Not an ordered_json, which looks for each of many names among all of them.
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : metrics) json[name] = NumberOrText(value);
  return json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<ExportMetadata> ReadExportMetadata(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return storage::ErrnoStatus(errno, "open", path);
  if (absl::Status status = storage::CheckRegular(info.st_mode, "open", path); !status.ok()) return status;
  std::ifstream file(path, std::ios::binary);
  std::array<char, kSafetensorsLengthBytes> prefix = {};
  file.read(prefix.data(), prefix.size());
  if (!file) return absl::DataLossError(fmt::format("{} has no header of safetensors", path));
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  const absl::StatusOr<uint64_t> length =
      DecodeSafetensorsLength(std::as_bytes(std::span(prefix)).first<kSafetensorsLengthBytes>(), file_bytes);
  if (!length.ok()) return length.status();
  std::string text(*length, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) return absl::DataLossError(fmt::format("{} ends in its header", path));
  absl::StatusOr<SafetensorsHeader> header =
      DecodeSafetensorsHeader(text, file_bytes - kSafetensorsLengthBytes - *length);
  if (!header.ok()) return header.status();
  return std::move(header->metadata);
}

}  // namespace tidemark
