#include "bench/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace tidemark::bench {
namespace {

std::string_view UnitName(Unit unit) {
  switch (unit) {
    case Unit::kSeconds:
      return "s";
    case Unit::kBytes:
      return "B";
    case Unit::kBytesPerSecond:
      return "B/s";
  }
  return "";
}

std::string_view BetterName(Better better) { return better == Better::kLower ? "lower" : "higher"; }

// In columns of a terminal; every character of ours takes one.
size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) != 0x80;  // not a continuation byte of UTF-8
  }));
}

std::string Padded(std::string text, size_t width) {
  text.append(width - Width(text), ' ');
  return text;
}

using Cells = std::vector<std::string>;

// The first line is the head. All have as many cells.
std::string FormatMarkdown(const std::vector<Cells>& lines) {
  std::vector<size_t> widths(lines.front().size());
  for (const Cells& cells : lines) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], Width(cells[i]));
  }
  std::string table;
  for (size_t line = 0; line < lines.size(); ++line) {
    for (size_t i = 0; i < widths.size(); ++i) table += "| " + Padded(lines[line][i], widths[i]) + " ";
    table += "|\n";
    if (line > 0) continue;
    for (const size_t width : widths) table += "|" + std::string(width + 2, '-');
    table += "|\n";
  }
  return table;
}

Cells CellsOf(const Outcome& outcome) {
  const RowSpec& row = outcome.row;
  Cells cells = {
      row.name, row.compared, "", fmt::format("{} {}", row.better == Better::kLower ? "≤" : "≥", row.goal), "", ""};
  if (!outcome.measurement) {
    cells[4] = outcome.error.ok() ? "skipped" : "failed";
    cells[5] = outcome.error.ok() ? outcome.skipped : std::string(outcome.error.message());
    return cells;
  }
  const Measurement& measured = *outcome.measurement;
  cells[2] = fmt::format("{:.3f}", measured.ratio);
  cells[4] = IsMet(row, measured.ratio) ? "met" : "not met";
  cells[5] = fmt::format("{} ÷ {}", FormatQuantity(measured.numerator, measured.unit),
                         FormatQuantity(measured.denominator, measured.unit));
  return cells;
}

std::string FormatSize(const std::string& axis, double size) {
  return axis == "state bytes" ? FormatQuantity(size, Unit::kBytes) : fmt::format("{:.0f}", size);
}

nlohmann::ordered_json JsonOf(const Conditions& conditions) {
  return {{"cpu", conditions.machine.cpu},
          {"cores", conditions.machine.cores},
          {"memory_bytes", conditions.machine.memory_bytes},
          {"kernel", conditions.machine.kernel},
          {"file_system", conditions.machine.file_system},
          {"build", conditions.build},
          {"seed", conditions.seed},
          {"size_mib", conditions.size_mib},
          {"caches_dropped_by_root", conditions.caches_dropped_by_root}};
}

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string FormatQuantity(double value, Unit unit) {
  using Scale = std::pair<double, std::string_view>;
  static constexpr std::array<Scale, 3> kTimes = {{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}}};
  static constexpr std::array<Scale, 3> kRates = {{{1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}}};
  static constexpr std::array<Scale, 3> kSizes = {{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}};
  const auto& scales = unit == Unit::kSeconds ? kTimes : unit == Unit::kBytes ? kSizes : kRates;
  auto scale = std::find_if(scales.begin(), scales.end(), [&](const Scale& s) { return value >= s.first; });
  if (scale == scales.end()) --scale;
  const double scaled = value / scale->first;
  const int decimals = scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", scaled, decimals, scale->second);
}

std::string FormatTable(std::span<const Outcome> outcomes) {
  std::vector<Cells> lines = {{"row", "compared", "ratio", "goal", "met", "measured"}};
  for (const Outcome& outcome : outcomes) lines.push_back(CellsOf(outcome));
  return FormatMarkdown(lines);
}

double LastExponent(const GrowthSeries& series) {
  const size_t last = series.sizes.size() - 1;
  return std::log(series.values[last] / series.values[last - 1]) /
         std::log(series.sizes[last] / series.sizes[last - 1]);
}

std::string FormatGrowthTables(std::span<const GrowthSeries> growth) {
  std::string tables;
  std::vector<Cells> lines;
  for (size_t i = 0; i < growth.size(); ++i) {
    const GrowthSeries& series = growth[i];
    if (lines.empty()) {
      lines.push_back({series.axis});
      for (const double size : series.sizes) lines.back().push_back(FormatSize(series.axis, size));
      lines.back().push_back("last exponent");
    }
    lines.push_back({series.quantity});
    for (const double value : series.values) lines.back().push_back(FormatQuantity(value, series.unit));
    lines.back().push_back(fmt::format("{:.2f}", LastExponent(series)));
    if (i + 1 < growth.size() && growth[i + 1].axis == series.axis) continue;
    tables += (tables.empty() ? "" : "\n") + FormatMarkdown(lines);
    lines.clear();
  }
  return tables;
}

std::string FormatConditions(const Conditions& conditions) {
  const storage::Machine& machine = conditions.machine;
  return fmt::format(
      "CPU          {}, {} cores, {} of memory\n"
      "kernel       {}\n"
      "file system  {}\n"
      "build        {}\n"
      "data         seed {}, {} MiB for a GiB\n"
      "cold caches  {}\n",
      machine.cpu, machine.cores, FormatQuantity(static_cast<double>(machine.memory_bytes), Unit::kBytes),
      machine.kernel, machine.file_system, conditions.build, conditions.seed, conditions.size_mib,
      conditions.caches_dropped_by_root ? "files dropped, then all of the page cache" : "files dropped");
}

std::string FormatJson(std::span<const Outcome> outcomes, const Conditions& conditions) {
  const nlohmann::ordered_json shared = JsonOf(conditions);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Outcome& outcome : outcomes) {
    nlohmann::ordered_json row = {
        {"name", outcome.row.name}, {"compared", outcome.row.compared},         {"ratio", nullptr},
        {"goal", outcome.row.goal}, {"better", BetterName(outcome.row.better)}, {"met", nullptr}};
    if (const auto& measured = outcome.measurement) {
      row["ratio"] = measured->ratio;
      row["met"] = IsMet(outcome.row, measured->ratio);
      row["numerator"] = measured->numerator;
      row["denominator"] = measured->denominator;
      row["unit"] = UnitName(measured->unit);
      row["pairs"] = measured->ratios.size();
      row["ratios"] = measured->ratios;
    }
    row["skipped"] = outcome.skipped.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(outcome.skipped);
    row["error"] = outcome.error.ok() ? nlohmann::ordered_json() : nlohmann::ordered_json(outcome.error.ToString());
    row["seconds"] = outcome.seconds;
    row["conditions"] = shared;
    rows.push_back(std::move(row));
  }
  return Dump(rows);
}

std::string FormatGrowthJson(std::span<const GrowthSeries> growth, const Conditions& conditions) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const GrowthSeries& series : growth) {
    all.push_back({{"axis", series.axis},
                   {"quantity", series.quantity},
                   {"unit", UnitName(series.unit)},
                   {"sizes", series.sizes},
                   {"values", series.values},
                   {"last_exponent", LastExponent(series)}});
  }
  return Dump({{"conditions", JsonOf(conditions)}, {"series", std::move(all)}});
}

}  // namespace tidemark::bench
