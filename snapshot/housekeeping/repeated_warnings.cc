#include "snapshot/housekeeping/repeated_warnings.h"

#include <utility>

namespace tidemark {

void RepeatedWarnings::Begin() {
  before_ = std::move(now_);
  now_.clear();
}

bool RepeatedWarnings::IsNew(std::string_view line) {
  const bool first = now_.insert(std::string(line)).second;
  return first && !before_.contains(line);
}

}  // namespace tidemark
