#include "tidemark/average.h"

namespace tidemark {

absl::StatusOr<std::shared_ptr<Companion>> MakeAverage(AverageOptions) {
  return absl::UnimplementedError("averages");
}

}  // namespace tidemark
