#include "snapshot/exchange/export_sink.h"

#include <algorithm>

#include "snapshot/exchange/float_conversion.h"

namespace tidemark {

absl::Status WriteElements(ExportSink& sink, Dtype stored, Dtype exported, std::span<const std::byte> bytes) {
  if (stored == exported) return sink.Write(bytes);
  // A piece at a time, so that what is converted takes little memory of its own.
  constexpr size_t kPieceElements = size_t{1} << 20;
  const size_t stored_bytes = GetDtypeInfo(stored).element_bytes;
  std::vector<std::byte> converted;
  while (!bytes.empty()) {
    const size_t elements = std::min<size_t>(kPieceElements, bytes.size() / stored_bytes);
    converted.resize(elements * GetDtypeInfo(exported).element_bytes);
    ConvertFloats(stored, bytes.first(elements * stored_bytes), exported, converted);
    if (absl::Status status = sink.Write(converted); !status.ok()) return status;
    bytes = bytes.subspan(elements * stored_bytes);
  }
  return absl::OkStatus();
}

}  // namespace tidemark
