#include "tools/checkpoint_inspect/output/chart_axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "fmt/format.h"

namespace tidemark::inspect {
namespace {

// Differences of numbers beyond this are no doubles any more.
constexpr double kLargest = 4e307;

// The smallest of 1, 2, 5 times a power of ten that is at least `least`, which is more than 0.
double RoundStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1, 2, 5}) {
    // The quotient of powers of ten may be off in its last bit.
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Of numbers up to `largest`: round in the unit in which these are written.
double StepFor(double least, double largest, AxisUnit unit) {
  if (unit == AxisUnit::kInteger) return std::max(1.0, RoundStep(least));
  if (unit != AxisUnit::kBytes) return RoundStep(least);
  const double power = std::pow(1024, std::clamp(std::floor(std::log2(std::max(largest, 1.0)) / 10), 0.0, 6.0));
  return std::max(1.0, RoundStep(least / power) * power);
}

std::string Scientific(double value, int digits) {
  std::string text = fmt::format("{:.{}e}", value, std::clamp(digits, 0, 15));
  const size_t exponent = text.find('e') + 1;
  // "1e+05" is "1e5", "1e-05" is "1e-5".
  if (text[exponent] == '+') text.erase(exponent, 1);
  const size_t first = text[exponent] == '-' ? exponent + 1 : exponent;
  while (first + 1 < text.size() && text[first] == '0') text.erase(first, 1);
  return text;
}

// Of numbers up to `largest` that differ by `step`.
std::string NumberLabel(double value, double largest, double step) {
  if (value == 0) return "0";
  const int step_digit = static_cast<int>(std::floor(std::log10(step) + 1e-9));
  if (largest >= 1e6 || largest < 1e-3) {
    return Scientific(value, static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9)) - step_digit);
  }
  return fmt::format("{:.{}f}", value, std::clamp(-step_digit, 0, 15));
}

std::string IntegerLabel(double value, double largest, double step) {
  if (value == 0) return "0";
  if (largest >= 1e10) return Scientific(value, static_cast<int>(std::log10(std::abs(value)) - std::log10(step)));
  if (largest >= 1e7 && std::fmod(step, 1e5) == 0) return fmt::format("{:.4g}M", value / 1e6);
  if (largest >= 1e4 && std::fmod(step, 100) == 0) return fmt::format("{:.6g}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::string BytesLabel(double value, double largest) {
  constexpr std::array<std::string_view, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; largest >= 1024 && unit + 1 < kUnits.size(); ++unit) {
    largest /= 1024;
    value /= 1024;
  }
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::string SecondsLabel(double value, double largest) {
  if (largest < 1e-3) return fmt::format("{:.4g} µs", value * 1e6);
  if (largest < 1) return fmt::format("{:.4g} ms", value * 1e3);
  return fmt::format("{:.6g} s", value);
}

std::string Label(double value, AxisUnit unit, double largest, double step) {
  switch (unit) {
    case AxisUnit::kNumber:
      return NumberLabel(value, largest, step);
    case AxisUnit::kInteger:
      return IntegerLabel(value, largest, step);
    case AxisUnit::kBytes:
      return BytesLabel(value, largest);
    case AxisUnit::kSeconds:
      return SecondsLabel(value, largest);
  }
  return "";
}

}  // namespace

double Axis::Position(double value) const {
  if (log) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

Axis LinearAxis(double low, double high, AxisUnit unit, int ticks_max, bool rounded) {
  low = std::clamp(low, -kLargest, kLargest);
  high = std::clamp(high, -kLargest, kLargest);
  // Less than that between them, and ticks would be the same double.
  const double least = std::max(std::abs(low), std::abs(high)) * 1e-12;
  if (high - low <= least) {
    // Of larger integers, 1 more may be the same double.
    const bool steps_by_one = unit == AxisUnit::kInteger && std::abs(low) < 1e12;
    const double margin = steps_by_one ? 1 : std::max(std::abs(low) * 0.05, 1e-300);
    low = low >= 0 ? std::max(0.0, low - margin) : low - margin;
    high = high == 0 && unit != AxisUnit::kInteger ? 1 : high + margin;
  }
  const double largest_shown = std::max(std::abs(low), std::abs(high));
  double step = StepFor((high - low) / ticks_max, largest_shown, unit);
  // Rounding outwards may add a tick at each end, and both ends may be ticks.
  const auto ticks = [&] {
    if (rounded) return std::ceil(high / step - 1e-9) - std::floor(low / step + 1e-9) + 1;
    return std::floor(high / step + 1e-9) - std::ceil(low / step - 1e-9) + 1;
  };
  while (ticks() > ticks_max) step = StepFor(step * 1.5, largest_shown, unit);
  Axis axis{.low = low, .high = high};
  if (rounded) {
    axis.low = std::floor(low / step + 1e-9) * step;
    // Integers may have a step that is wider than the range.
    axis.high = std::max(std::ceil(high / step - 1e-9) * step, axis.low + step);
  }
  const double first = std::ceil(axis.low / step - 1e-9);
  for (double i = first; i * step <= axis.high + step * 1e-9 && axis.ticks.size() < static_cast<size_t>(ticks_max);
       ++i) {
    // Not -0, which would be written so.
    axis.ticks.push_back(std::clamp(i * step, axis.low, axis.high) + 0.0);
  }
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  for (const double tick : axis.ticks) axis.labels.push_back(Label(tick, unit, largest, step));
  return axis;
}

Axis LogAxis(double low, double high, int ticks_max) {
  Axis axis{.log = true};
  if (std::log10(high / low) * 3 + 2 <= ticks_max) {
    for (double power = std::pow(10, std::floor(std::log10(low) + 1e-9)); std::isfinite(power) && power / 10 <= high;
         power *= 10) {
      for (const double factor : {1, 2, 5}) {
        if (std::isfinite(factor * power)) axis.ticks.push_back(factor * power);
      }
    }
    // One at or below `low` is the first, one at or above `high` the last.
    const auto above = std::upper_bound(axis.ticks.begin(), axis.ticks.end(), low * (1 + 1e-9));
    axis.ticks.erase(axis.ticks.begin(), std::max(above - 1, axis.ticks.begin()));
    const auto last = std::lower_bound(axis.ticks.begin() + 1, axis.ticks.end(), high * (1 - 1e-9));
    axis.ticks.erase(std::min(last + 1, axis.ticks.end()), axis.ticks.end());
  } else {
    const int first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
    const int last = static_cast<int>(std::ceil(std::log10(high) - 1e-9));
    const int stride = std::max(1, (last - first + ticks_max - 2) / (ticks_max - 1));
    for (int power = first; power < last + stride; power += stride) axis.ticks.push_back(std::pow(10, power));
  }
  axis.low = axis.ticks.front();
  axis.high = axis.ticks.back();
  for (const double tick : axis.ticks) {
    axis.labels.push_back(tick >= 1e6 || tick < 1e-3 ? Scientific(tick, 0) : fmt::format("{:.6g}", tick));
  }
  return axis;
}

}  // namespace tidemark::inspect
