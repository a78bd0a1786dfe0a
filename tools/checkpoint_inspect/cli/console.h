// Console: where output goes. Data to standard output, everything else to standard error.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_CONSOLE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_CONSOLE_H_

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tidemark::inspect {

enum class Colour { kNone, kHeading, kGood, kWarning, kBad };

// Thread-compatible; one for a pair of streams.
class Console {
 public:
  // Standard output and standard error. Looks once at whether they are terminals, and at NO_COLOR and TERM.
  Console();
  // For streams that are not terminals, and that outlive the console. With `terminal_columns` text is laid out as for a
  // terminal of that width, without colour.
  Console(std::FILE* out, std::FILE* err, std::optional<size_t> terminal_columns = std::nullopt);

  // Standard output is a terminal that wants colour: NO_COLOR is unset or empty, TERM is not "dumb".
  bool colour() const { return colour_; }
  // A line on standard error can be rewritten in place.
  bool progress() const { return progress_; }

  // Standard output is a terminal: what is wider than columns() would be broken there.
  bool terminal() const { return terminal_; }

  // How wide a line of standard output may be: $COLUMNS, else the terminal's width, else 80. At least 40, at most 400.
  size_t columns() const { return columns_; }

  // `text` in `colour`, if the terminal wants that.
  std::string Paint(std::string_view text, Colour colour) const;

  // One line of escaped text with its end. On a terminal that is too narrow it is broken between words, and each
  // further line begins with `hanging` spaces.
  std::string Fold(std::string_view line, size_t hanging) const;

  // Data. Kept by the stream until it is full, or FlushData.
  void PrintData(std::string_view text);

  // kDataLoss if any data could not be written (a full disk).
  absl::Status FlushData();

  // kDataLoss, as FlushData would say it of any data, if standard output was not opened for writing: it is closed. For
  // who may have nothing to print for long.
  absl::Status CheckData() const;

  // One line on standard error, "checkpoint-inspect: " before it. `text` is escaped.
  void Note(std::string_view text);
  void Warn(std::string_view text);
  void Fail(std::string_view text);
  void Fail(const absl::Status& status);

  // How wide a progress line may be: one column less than the terminal that standard error is, else than $COLUMNS, else
  // than 80. Asked for anew each time, for a terminal's width changes.
  size_t ProgressColumns() const;

  // Replaces the progress line, of escaped text, cut off at ProgressColumns(); empty: removes it. Nothing happens where
  // progress() is false.
  void ShowProgress(std::string_view line);

 private:
  void Flush();

  std::FILE* const out_;
  std::FILE* const err_;
  bool terminal_;
  bool colour_;
  bool progress_;
  size_t columns_;
  int write_errno_ = 0;       // of the first write of data that failed
  size_t shown_columns_ = 0;  // of the progress line that is shown now
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_CONSOLE_H_
