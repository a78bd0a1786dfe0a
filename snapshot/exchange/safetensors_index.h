// The index of a model in several safetensors files, *.safetensors.index.json: pure functions between it and text.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_SAFETENSORS_INDEX_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_SAFETENSORS_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tidemark {

inline constexpr uint64_t kSafetensorsIndexBytesMax = 100'000'000;

// The file of each tensor, "weight_map".
using SafetensorsFiles = std::map<std::string, std::string>;

// File names are plain, so that none leads out of the folder of the index. What else an index says is skipped.
// kDataLoss: it has no weight_map, has a name twice, more than kSafetensorsTensorsMax names, or is no such JSON.
absl::StatusOr<SafetensorsFiles> DecodeSafetensorsIndex(std::string_view text);

// `total_bytes`: of all tensors.
std::string EncodeSafetensorsIndex(const SafetensorsFiles& files, uint64_t total_bytes);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_SAFETENSORS_INDEX_H_
