#include "snapshot/complaints.h"

#include <utility>

namespace tidemark {

void Complaints::Begin() {
  before_ = std::move(now_);
  now_.clear();
}

bool Complaints::IsNew(std::string_view line) {
  const bool first = now_.insert(std::string(line)).second;
  return first && !before_.contains(line);
}

}  // namespace tidemark
