// Options of Python, which come as a dict with a value for each, as those of the library.

#ifndef TIDEMARK_PYTHON_NATIVE_OPTIONS_DICT_H_
#define TIDEMARK_PYTHON_NATIVE_OPTIONS_DICT_H_

#include <optional>
#include <string>
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

template <typename T>
T Option(const nanobind::dict& options, const char* name) {
  return nanobind::cast<T>(options[name]);
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
