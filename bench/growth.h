// How what a user waits for, and memory, grow with the state's bytes, its entries, the store's steps and the job's
// ranks.

#ifndef TIDEMARK_BENCH_GROWTH_H_
#define TIDEMARK_BENCH_GROWTH_H_

#include <vector>

#include "absl/status/statusor.h"
#include "bench/context.h"
#include "bench/row.h"

namespace tidemark::bench {

// Measures each value as often as Settings::pairs says and takes the median; memory is measured once. The series of an
// axis follow one another.
absl::StatusOr<std::vector<GrowthSeries>> MeasureGrowth(Context& context);

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_GROWTH_H_
