// Clocks, and pairs of measurements taken in turn: what is compared runs minutes apart at most on a machine whose speed
// drifts, so that a ratio means more than either number.

#ifndef TIDEMARK_BENCH_MEASURE_H_
#define TIDEMARK_BENCH_MEASURE_H_

#include <chrono>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/row.h"

namespace tidemark::bench {

// Wall time since it was made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Of the process so far, in user and kernel mode, on all threads, io_uring's workers among them.
double CpuSeconds();

// The middle one, or the mean of the two in the middle. Precondition: not empty.
double Median(std::vector<double> values);

template <typename T>
using Pairs = std::vector<std::pair<T, T>>;  // numerator, denominator

// Calls `numerator` and `denominator` `pairs` times each, one after the other; every other pair begins with the
// denominator. `on_pair(i)` is called before pair i, counted from 1. Stops at the first error.
template <typename T>
absl::StatusOr<Pairs<T>> MeasurePairs(int pairs, const std::function<void(int)>& on_pair,
                                      const std::function<absl::StatusOr<T>()>& numerator,
                                      const std::function<absl::StatusOr<T>()>& denominator) {
  Pairs<T> measured;
  for (int pair = 1; pair <= pairs; ++pair) {
    on_pair(pair);
    const bool numerator_first = pair % 2 == 1;
    absl::StatusOr<T> first = numerator_first ? numerator() : denominator();
    if (!first.ok()) return first.status();
    absl::StatusOr<T> second = numerator_first ? denominator() : numerator();
    if (!second.ok()) return second.status();
    if (!numerator_first) std::swap(first, second);
    measured.emplace_back(*std::move(first), *std::move(second));
  }
  return measured;
}

// Precondition: at least one pair.
Measurement Summarise(std::span<const std::pair<double, double>> pairs, Unit unit);

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_MEASURE_H_
