#include "storage/io/warn_once.h"

#include <utility>

namespace tidemark::storage {

bool WarnOnce::IsNew(std::string_view problem) {
  if (this_run_.contains(problem)) return false;
  this_run_.emplace(problem);
  return !last_run_.contains(problem);
}

void WarnOnce::Ended(std::string_view problem) {
  for (auto* problems : {&last_run_, &this_run_}) {
    if (const auto found = problems->find(problem); found != problems->end()) problems->erase(found);
  }
}

void WarnOnce::BeginRun() {
  last_run_ = std::move(this_run_);
  this_run_.clear();
}

}  // namespace tidemark::storage
