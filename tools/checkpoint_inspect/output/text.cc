#include "tools/checkpoint_inspect/output/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/charconv.h"
#include "fmt/compile.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/io/printable_text.h"

namespace tidemark::inspect {
namespace {

using storage::DecodeFront;

}  // namespace

std::string Escape(std::string_view text) { return storage::PrintableText(text); }

size_t DisplayWidth(std::string_view text) {
  // Escaped text is UTF-8: each code point has exactly one byte that does not continue another.
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins));
}

std::string Shorten(std::string_view text, size_t columns) {
  if (DisplayWidth(text) <= columns) return std::string(text);
  size_t kept = 0;
  for (size_t i = 0; i + 1 < columns; ++i) kept += DecodeFront(text.substr(kept)).bytes;
  return std::string(text.substr(0, kept)) + "…";
}

std::string ShortenAtWord(std::string_view text, size_t columns) {
  if (DisplayWidth(text) <= columns || columns < 3) return Shorten(text, columns);
  std::string_view rest = text;
  const std::string_view words = TakeLine(&rest, columns - 2);
  return DisplayWidth(words) > columns - 2 ? Shorten(text, columns) : std::string(words) + " …";
}

std::string_view TakeLine(std::string_view* text, size_t columns) {
  size_t end = 0;  // of the words that fit
  // Indentation belongs to the first word.
  size_t next = text->find_first_not_of(' ');
  while (next != std::string_view::npos) {
    const size_t word_end = std::min(text->find(' ', next), text->size());
    if (end > 0 && DisplayWidth(text->substr(0, word_end)) > columns) break;
    end = word_end;
    next = text->find_first_not_of(' ', word_end);
  }
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(next, text->size()));
  return line;
}

std::string HumanBytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would be written as 1024.0.
  for (; value >= 1023.95 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  // FMT_COMPILE, here and in what else ls writes for each step: to parse a format at run time takes as long as to write
  // the number.
  return fmt::format(FMT_COMPILE("{:.1f} {}"), value, kUnits[unit]);
}

std::string ShareText(double part, double whole) {
  if (whole == 0) return "-";
  const double percent = 100 * part / whole;
  if (percent > 0 && percent < 0.01) return "under 0.01 %";
  return percent < 1 ? fmt::format("{:.1g} %", percent) : fmt::format(FMT_COMPILE("{:.0f} %"), percent);
}

std::string Ratio(uint64_t logical, uint64_t stored) {
  if (logical == 0) return "-";
  const double ratio = static_cast<double>(stored) / static_cast<double>(logical);
  return ratio > 0 && ratio < 0.01 ? "under 0.01" : fmt::format(FMT_COMPILE("{:.2f}"), ratio);
}

std::string ReusedShare(uint64_t reused, uint64_t stored) {
  return ShareText(static_cast<double>(reused), static_cast<double>(reused + stored));
}

std::string Age(absl::Duration age) {
  if (age < -absl::Seconds(1)) return "-";
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(age));
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

std::string HumanDuration(absl::Duration duration) {
  if (duration < absl::Seconds(1)) return fmt::format("{:.1f} ms", absl::ToDoubleMilliseconds(duration));
  return fmt::format("{:.2f} s", absl::ToDoubleSeconds(duration));
}

std::string Rfc3339(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%E*SZ", time, absl::UTCTimeZone()); }

std::string MetricText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format(FMT_COMPILE("{:.6g}"), value);
}

std::string EdgeText(double edge) { return fmt::format("{:.2g}", edge); }

std::optional<double> ParsePercentage(std::string_view text) {
  double percent = 0;
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  // from_chars of floating point is not in every standard library that compiles this.
  const auto [end, error] = absl::from_chars(text.data(), text.data() + text.size(), percent);
  if (error != std::errc() || end != text.data() + text.size() || !(percent >= 0 && percent <= 100))
    return std::nullopt;
  return percent / 100;
}

std::string MetricsText(const std::map<std::string, double>& metrics, std::string_view first) {
  if (metrics.empty()) return "-";
  enum Rank { kFirst, kEvaluated, kOther };
  const auto rank_of = [&](std::string_view name) {
    if (name == first) return kFirst;
    return name.find('/') == std::string_view::npos ? kOther : kEvaluated;
  };
  std::string text;
  for (const Rank rank : {kFirst, kEvaluated, kOther}) {
    for (const auto& [name, value] : metrics) {
      if (rank_of(name) != rank) continue;
      if (!text.empty()) text += ' ';
      text += Escape(name);
      text += '=';
      text += MetricText(value);
    }
  }
  return text;
}

std::string AffectedEntriesLine(const std::vector<std::string>& entries) {
  constexpr size_t kNamedMax = 10;  // JSON has all names
  if (entries.empty()) return "";
  std::string text = "    entries affected: ";
  const size_t named = std::min(entries.size(), kNamedMax);
  for (size_t i = 0; i < named; ++i) text += (i == 0 ? "" : ", ") + Escape(entries[i]);
  if (entries.size() > named) text += fmt::format(" and {} more", entries.size() - named);
  return text + "\n";
}

std::string ShapeText(const EntrySpec& spec) {
  const std::string shape = fmt::format("[{}]", fmt::join(spec.shape, ", "));
  if (spec.whole()) return shape;
  std::vector<std::string> ranges;
  for (size_t d = 0; d < spec.box_extent.size(); ++d) {
    ranges.push_back(fmt::format("{}:{}", spec.box_offset[d], spec.box_offset[d] + spec.box_extent[d]));
  }
  return fmt::format("{} held [{}]", shape, fmt::join(ranges, ", "));
}

std::string TypeText(const EntrySpec& spec) {
  return std::string(spec.kind == EntryKind::kTensor ? GetDtypeInfo(spec.dtype).name : EntryKindName(spec.kind));
}

}  // namespace tidemark::inspect
