#include "bench/measure.h"

#include <sys/resource.h>

#include <algorithm>

namespace tidemark::bench {

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Measurement Summarise(std::span<const std::pair<double, double>> pairs, Unit unit) {
  Measurement measurement{.unit = unit};
  std::vector<double> numerators;
  std::vector<double> denominators;
  for (const auto& [numerator, denominator] : pairs) {
    numerators.push_back(numerator);
    denominators.push_back(denominator);
    measurement.ratios.push_back(numerator / denominator);
  }
  measurement.ratio = Median(measurement.ratios);
  measurement.numerator = Median(numerators);
  measurement.denominator = Median(denominators);
  return measurement;
}

}  // namespace tidemark::bench
