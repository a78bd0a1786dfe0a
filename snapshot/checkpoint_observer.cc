#include "tidemark/checkpoint_observer.h"

#include <cstdio>

namespace tidemark {

CheckpointObserver::~CheckpointObserver() = default;

void CheckpointObserver::Warning(std::string_view line) {
  std::fprintf(stderr, "tidemark: %.*s\n", static_cast<int>(line.size()), line.data());
}

}  // namespace tidemark
