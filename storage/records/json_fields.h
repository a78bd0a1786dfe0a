// Fields of the JSON objects in the index and in small files of a store. No I/O.
//
// What decodes throws std::invalid_argument where a field is not what it must be, and the library's own exceptions
// where it is not there; DecodeJson turns both into a status, so that none leaves the decoder of a record.

#ifndef TIDEMARK_STORAGE_RECORDS_JSON_FIELDS_H_
#define TIDEMARK_STORAGE_RECORDS_JSON_FIELDS_H_

#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "storage/bytes/ids.h"
#include "storage/io/exception_status.h"
#include "storage/io/printable_text.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// Its destructor needs memory for what an array or an object contains, and ends the process where there is none. So
// what is built or read here lies in a ScopedJson, also a result that is not stored anywhere. No object is made from an
// initializer list: that destroys arrays.
using Json = nlohmann::json;

// A value whose destruction needs no memory, down to a depth of 32, which no record has.
class ScopedJson {
 public:
  ScopedJson() = default;
  explicit ScopedJson(Json&& json) : json_(std::move(json)) {}
  ~ScopedJson() { Clear(json_, /*depth=*/32); }
  ScopedJson(ScopedJson&& other) noexcept : json_(std::move(other.json_)) {}
  ScopedJson(const ScopedJson&) = delete;
  ScopedJson& operator=(const ScopedJson&) = delete;

  Json& operator*() { return json_; }
  Json* operator->() { return &json_; }

 private:
  static void Clear(Json& json, int depth);

  Json json_;
};

// Sets fields of an object: a name, its value, a name, and so on.
inline void SetFields(Json&) {}
template <typename Value, typename... Rest>
void SetFields(Json& object, std::string_view name, Value&& value, Rest&&... rest) {
  Json& field = object[std::string(name)];
  if constexpr (std::is_same_v<Value, ScopedJson>) {
    field = std::move(*value);
  } else {
    field = std::forward<Value>(value);
  }
  SetFields(object, std::forward<Rest>(rest)...);
}

// An object of these fields.
template <typename... NamesAndValues>
ScopedJson JsonObject(NamesAndValues&&... fields) {
  ScopedJson object(Json::object());
  SetFields(*object, std::forward<NamesAndValues>(fields)...);
  return object;
}

// Parses JSON, independently of the process's locale. Throws the library's exceptions. If `allow_exceptions` is false,
// it returns a discarded value instead. `look`: the library's callback; null: none. All JSON is parsed by this
// function or under a CLocale, because the library's parser expects the locale's decimal point in numbers. Of a decimal
// point of several bytes it knows only the first.
Json ParseJson(std::string_view bytes, const Json::parser_callback_t& look = nullptr, bool allow_exceptions = true);

// Whether the bytes are JSON. Keeps no value.
bool IsJson(std::string_view bytes);

// NaN and infinities, for which JSON has no numbers, are the strings "NaN", "Infinity" and "-Infinity".
Json EncodeNumber(double value);
double DecodeNumber(const Json& json);

ScopedJson EncodeMetrics(const Metrics& metrics);
Metrics DecodeMetrics(const Json& json);

// An Evaluation's fields, all of them: "evaluator", "worker", "outcome", "reason", "metrics", "unhealthy",
// "reported_unix_ns", "took_ns".
ScopedJson EncodeEvaluation(const Evaluation& evaluation);
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
std::string DumpJson(ScopedJson json);

inline Json ParseWhole(std::string_view bytes) { return ParseJson(bytes); }

// Hands the object that `parse` makes of `bytes` to `decode`, whose result it returns. Errors, with `what`:
// - kDataLoss: one of them throws.
// - kResourceExhausted: one of them throws std::bad_alloc, which says nothing about the bytes.
// - kUnimplemented: the object's "version" is above `version_max`.
template <typename Record, typename DecodeFunction>
absl::StatusOr<Record> DecodeJson(std::string_view what, std::string_view bytes, int version_max,
                                  const DecodeFunction& decode, Json (*parse)(std::string_view) = ParseWhole) {
  try {
    ScopedJson json(parse(bytes));
    const int64_t version = DecodeInt64(json->at("version"));
    if (version > version_max) {
      return absl::UnimplementedError(
          fmt::format("{} has version {}; this library reads up to {}", what, version, version_max));
    }
    if (version < 1) throw std::invalid_argument(fmt::format("version {} never existed", version));
    return decode(std::as_const(*json));
  } catch (const std::bad_alloc&) {
    return ExceptionStatus(what);
  } catch (const std::exception& error) {
    return absl::DataLossError(fmt::format("{} of {} bytes: {}", what, bytes.size(), JsonProblem(error)));
  }
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_JSON_FIELDS_H_
