// The bench's results as a table for people and as JSON for programs.

#ifndef TIDEMARK_BENCH_REPORT_H_
#define TIDEMARK_BENCH_REPORT_H_

#include <span>
#include <string>

#include "bench/row.h"
#include "storage/io/machine.h"

namespace tidemark::bench {

// What holds for all rows of a run.
struct Conditions {
  storage::Machine machine;
  std::string build;  // the library's version and LibTorch's
  uint64_t seed = 0;
  uint64_t size_mib = 0;  // that stood for a GiB
  bool caches_dropped_by_root = false;
};

// A Markdown table with aligned columns: name, what is compared, ratio, goal, whether it is met, and the two medians
// that were compared. A row without a measurement says why.
std::string FormatTable(std::span<const Outcome> outcomes);

// One line for each of the conditions.
std::string FormatConditions(const Conditions& conditions);

// An array with an object for each row:
//   name, compared, goal, better ("lower" or "higher")
//   ratio, met                     null where there is no measurement
//   numerator, denominator, unit   medians; "s", "B" or "B/s"
//   pairs, ratios                  how many pairs, and the ratio of each
//   skipped, error                 why there is no measurement, or null
//   seconds                        that the row took
//   conditions                     cpu, cores, memory_bytes, kernel, file_system, build, seed, size_mib,
//                                  caches_dropped_by_root
std::string FormatJson(std::span<const Outcome> outcomes, const Conditions& conditions);

// A Markdown table for each axis: a line for each quantity, with its values and the last exponent.
std::string FormatGrowthTables(std::span<const GrowthSeries> growth);

// An object: conditions as in FormatJson, and series, an array with an object for each: axis, quantity, unit, sizes,
// values and last_exponent.
std::string FormatGrowthJson(std::span<const GrowthSeries> growth, const Conditions& conditions);

// With three digits and a unit prefix: "61.3 ms", "1.92 GB/s", "1.00 GiB".
std::string FormatQuantity(double value, Unit unit);

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_REPORT_H_
