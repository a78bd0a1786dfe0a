// Fields of the JSON objects that the manifest and the files beside it are made of. No I/O.
//
// What decodes throws std::invalid_argument where a field is not what it must be, and the library's own exceptions
// where it is not there; DecodeJson turns both into a status, so that none leaves the decoder of a record.

#ifndef TIDEMARK_STORAGE_MANIFEST_JSON_FIELDS_H_
#define TIDEMARK_STORAGE_MANIFEST_JSON_FIELDS_H_

#include <cstdint>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "storage/io/printable_text.h"
#include "storage/shard/ids.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

using Json = nlohmann::json;

// NaN and infinities, for which JSON has no numbers, are the strings "NaN", "Infinity" and "-Infinity".
Json EncodeNumber(double value);
double DecodeNumber(const Json& json);

Json EncodeMetrics(const Metrics& metrics);
Metrics DecodeMetrics(const Json& json);

// An Evaluation's fields, all of them: "evaluator", "worker", "outcome", "reason", "metrics", "unhealthy",
// "reported_unix_ns", "took_ns".
Json EncodeEvaluation(const Evaluation& evaluation);
Evaluation DecodeEvaluation(const Json& json);

// A whole number in its own range; the library would cut a fraction off, and let what is too large wrap around.
int64_t DecodeInt64(const Json& json);
int64_t DecodeStep(const Json& json);  // >= 0
template <typename T>
T DecodeUnsigned(const Json& json) {
  if (!json.is_number_unsigned()) throw std::invalid_argument("a count is not an unsigned number");
  const uint64_t value = json.get<uint64_t>();
  if (value > std::numeric_limits<T>::max()) throw std::invalid_argument(fmt::format("{} is too large", value));
  return static_cast<T>(value);
}

// Of 32 hexadecimal digits.
template <typename Id>
Id DecodeId(const Json& json) {
  const auto bytes = FromHex(json.get_ref<const std::string&>());
  if (!bytes) throw std::invalid_argument("an id is not 32 hexadecimal digits");
  return Id{*bytes};
}

// What the library says of JSON that cannot be read, without its own name for the error, and printable.
std::string JsonProblem(const std::exception& error);

// One line without spaces. Text that is not UTF-8 (a path in a reason) is written with replacement characters rather
// than refused.
std::string DumpJson(const Json& json);

// Hands the object that `parse` makes of `bytes` to `decode`, whose result it returns. kDataLoss, with `what`, where
// one of them throws; kUnimplemented where the object's "version" is above `version_max`.
template <typename Record, typename Parse, typename DecodeFunction>
absl::StatusOr<Record> DecodeJson(std::string_view what, std::string_view bytes, int version_max, const Parse& parse,
                                  const DecodeFunction& decode) {
  try {
    const Json json = parse(bytes);
    const int64_t version = DecodeInt64(json.at("version"));
    if (version > version_max) {
      return absl::UnimplementedError(
          fmt::format("{} has version {}; this library reads up to {}", what, version, version_max));
    }
    if (version < 1) throw std::invalid_argument(fmt::format("version {} never existed", version));
    return decode(json);
  } catch (const std::exception& error) {
    return absl::DataLossError(fmt::format("{} of {} bytes: {}", what, bytes.size(), JsonProblem(error)));
  }
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_JSON_FIELDS_H_
