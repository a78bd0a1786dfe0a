// A row of the bench: two things measured in turn, and the goal that their ratio is held against.

#ifndef TIDEMARK_BENCH_ROW_H_
#define TIDEMARK_BENCH_ROW_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tidemark::bench {

enum class Better { kLower, kHigher };

// What the numbers of a row count.
enum class Unit { kSeconds, kBytes, kBytesPerSecond };

struct RowSpec {
  std::string name;
  std::string compared;  // "numerator ÷ denominator", as of the full size
  double goal = 0;
  Better better = Better::kLower;
};

struct Measurement {
  double ratio = 0;      // the median of `ratios`
  double numerator = 0;  // the medians of each, which need not have that ratio
  double denominator = 0;
  Unit unit = Unit::kSeconds;
  std::vector<double> ratios;  // of every pair, in the order in which they were measured
};

// What became of a row: a measurement, a reason why there is none on this machine, or an error.
struct Outcome {
  RowSpec row;
  std::optional<Measurement> measurement;
  std::string skipped;
  absl::Status error;
  double seconds = 0;  // that the row took, preparation included
};

// How one quantity grows with one size.
struct GrowthSeries {
  std::string axis;      // what grows: "state bytes", "entries", "steps", "ranks"
  std::string quantity;  // what is measured: "blocked", "committed", "restored", "memory", "open", "ls"
  Unit unit = Unit::kSeconds;
  std::vector<double> sizes;   // ascending
  std::vector<double> values;  // the median at each
};

// Of the last two values: value ~ size^exponent. 1 is a straight line, and less is better than that. Precondition: two
// values above 0.
double LastExponent(const GrowthSeries& series);

// The goal itself is met.
inline bool IsMet(const RowSpec& row, double ratio) {
  return row.better == Better::kLower ? ratio <= row.goal : ratio >= row.goal;
}

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_ROW_H_
