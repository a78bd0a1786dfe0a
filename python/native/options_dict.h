// Options of Python, which come as a dict with a value for each, as those of the library.

#ifndef TIDEMARK_PYTHON_NATIVE_OPTIONS_DICT_H_
#define TIDEMARK_PYTHON_NATIVE_OPTIONS_DICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/native/status_error.h"
#include "tidemark/step_info.h"

namespace tidemark::python {

// (Name in the checkpoint, name elsewhere).
using Renames = std::vector<std::pair<std::string, std::string>>;

// What an option of the type must be, for an error.
template <typename T>
constexpr const char* NeededOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return "a bool";
  } else if constexpr (std::is_same_v<T, uint64_t> || std::is_same_v<T, uint32_t>) {
    return sizeof(T) == 4 ? "an int from 0 to 2^32 - 1" : "an int from 0 to 2^64 - 1";
  } else if constexpr (std::is_integral_v<T>) {
    return sizeof(T) == 4 ? "an int from -2^31 to 2^31 - 1" : "an int from -2^63 to 2^63 - 1";
  } else if constexpr (std::is_floating_point_v<T>) {
    return "a float";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "a str without surrogates";
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return "a list of str";
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return "a list of ints from -2^63 to 2^63 - 1";
  } else {
    return "of another type";
  }
}

// kInvalidArgument, raised: the option cannot be a T. Names it.
template <typename T>
T Option(const nanobind::dict& options, const char* name) {
  const nanobind::object value = options[name];
  try {
    return nanobind::cast<T>(value);
  } catch (const nanobind::cast_error&) {
    Raise(absl::InvalidArgumentError(std::string(name) + " is " + nanobind::repr(value).c_str() + ": it must be " +
                                     NeededOf<T>()));
  }
}

// "lowest", "highest", or "" for none.
inline std::optional<BestMode> ModeOf(const std::string& mode) {
  if (mode.empty()) return std::nullopt;
  if (mode == "lowest") return BestMode::kLowest;
  if (mode == "highest") return BestMode::kHighest;
  Raise(absl::InvalidArgumentError("mode is '" + mode + "', not 'lowest' or 'highest'"));
}

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_OPTIONS_DICT_H_
