// The best modes (lowest or highest) of metrics, as the index keeps them. No I/O, no RocksDB.
// "best" -> BestModes, if a trainer has recorded the mode of any metric
//
// The value is a JSON object with a "version", like those of manifest_records.h.

#ifndef TIDEMARK_STORAGE_RECORDS_BEST_MODES_H_
#define TIDEMARK_STORAGE_RECORDS_BEST_MODES_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

inline constexpr int kBestModesVersion = 1;
inline constexpr std::string_view kBestModesKey = "best";

// The key is the metric's name as a step's record has it: "loss", "validation/loss".
using BestModes = std::map<std::string, BestMode, std::less<>>;

std::string EncodeBestModes(const BestModes& modes);

// kDataLoss: not such a record; the message names the fault. kUnimplemented: written by a newer version.
absl::StatusOr<BestModes> DecodeBestModes(std::string_view bytes);

// The one rule for a metric's mode: the recorded one, else the one that the metric's name gives (BestModeOfName).
// nullopt: neither gives one.
std::optional<BestMode> FindBestMode(const BestModes& recorded, std::string_view metric);

// The same for a caller that needs a mode. kInvalidArgument: neither gives one.
absl::StatusOr<BestMode> RequireBestMode(const BestModes& recorded, std::string_view metric);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_BEST_MODES_H_
