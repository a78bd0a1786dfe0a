// How numbers, times and names are written for people. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TEXT_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "tidemark/entry.h"

namespace tidemark::inspect {

// Text that came out of a store, made harmless for a terminal: control characters (C0, DEL, C1), line separators and
// the marks that turn the direction of writing become \n, \t, \r, \xNN or \u{NNNN}, and so do bytes that are not UTF-8.
std::string Escape(std::string_view text);

// Columns that escaped text takes: its code points.
size_t DisplayWidth(std::string_view text);

// At most `columns` of escaped text; what was cut off shows as "…".
std::string Shorten(std::string_view text, size_t columns);

// The same, cut behind a word if a word fits: "loss=0.25 …".
std::string ShortenAtWord(std::string_view text, size_t columns);

// Takes from the front of escaped text as many words as fit into `columns` (>= 1), without the spaces behind them. A
// word that is wider than that is one line.
std::string_view TakeLine(std::string_view* text, size_t columns);

// "512 B", "1.5 KiB", "20.0 GiB".
std::string HumanBytes(uint64_t bytes);

// In plain digits, however small: "87 %", "0.3 %", "under 0.01 %"; "0 %" is none at all, "-" where the whole is
// nothing.
std::string ShareText(double part, double whole);

// stored/logical: "0.67", "under 0.01"; "-" where nothing is logical.
std::string Ratio(uint64_t logical, uint64_t stored);

// Of a step's bytes, those that lie in other steps' files, as a share.
std::string ReusedShare(uint64_t reused, uint64_t stored);

// "0 s", "59 s", "12 min", "3 h", "4 d"; "-" for a time that lies ahead of the clock by more than a second.
std::string Age(absl::Duration age);

// "12.3 ms", "1.20 s".
std::string HumanDuration(absl::Duration duration);

// UTC, RFC 3339 with as many digits of a second as there are.
std::string Rfc3339(absl::Time time);

// "NaN", "Infinity", "-Infinity", or six significant digits.
std::string MetricText(double value);

// Of a bin or a class of values, in two significant digits.
std::string EdgeText(double edge);

// "10%", from 0% to 100%, as a share from 0 to 1; nullopt: no such text.
std::optional<double> ParsePercentage(std::string_view text);

// "validation/loss=2.5 learning_rate=0.001 loss=2.3", names escaped; "-" for none. What evaluators found comes before
// the rest, and `first` before all: a place too narrow for all of them shows what a step is judged by.
std::string MetricsText(const std::map<std::string, double>& metrics, std::string_view first = "");

// "    entries affected: model.weight, model.bias and 12 more", a line of its own, names escaped; "" where none is.
std::string AffectedEntriesLine(const std::vector<std::string>& entries);

// "[512, 128]"; with the part that is held where that is not all: "[512, 128] held [0:256, 0:128]".
std::string ShapeText(const EntrySpec& spec);

// The dtype of a tensor; for anything else its kind.
std::string TypeText(const EntrySpec& spec);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TEXT_H_
