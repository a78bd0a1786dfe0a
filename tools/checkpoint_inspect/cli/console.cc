#include "tools/checkpoint_inspect/cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

constexpr size_t kColumnsMin = 40;
constexpr size_t kColumnsMax = 400;
constexpr size_t kColumnsDefault = 80;

// $COLUMNS; 0: it is no number.
size_t WantedColumns() {
  const std::string_view wanted = Environment("COLUMNS");
  size_t columns = 0;
  std::from_chars(wanted.data(), wanted.data() + wanted.size(), columns);
  return columns;
}

// 0: the stream is no terminal, or one that does not know how wide it is.
size_t TerminalColumns(int stream) {
  winsize size = {};
  return ioctl(stream, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

size_t OutputColumns() {
  size_t columns = WantedColumns();
  if (columns == 0) columns = TerminalColumns(STDOUT_FILENO);
  return columns == 0 ? kColumnsDefault : std::clamp(columns, kColumnsMin, kColumnsMax);
}

// Select Graphic Rendition, ECMA-48.
std::string_view Code(Colour colour) {
  switch (colour) {
    case Colour::kNone:
      return "";
    case Colour::kHeading:
      return "\x1b[1m";
    case Colour::kGood:
      return "\x1b[32m";
    case Colour::kWarning:
      return "\x1b[33m";
    case Colour::kBad:
      return "\x1b[31m";
  }
  return "";
}

// The minimum number of columns beside the indentation: a sentence does not fit into fewer.
constexpr size_t kFoldedColumnsMin = 20;

absl::Status WriteError(int error) {
  return absl::DataLossError(fmt::format("write to standard output: {}", std::strerror(error)));
}

}  // namespace

Console::Console()
    : out_(stdout),
      err_(stderr),
      terminal_(isatty(STDOUT_FILENO) == 1),
      colour_(terminal_ && Environment("NO_COLOR").empty() && Environment("TERM") != "dumb"),
      progress_(isatty(STDERR_FILENO) == 1),
      columns_(OutputColumns()) {}

Console::Console(std::FILE* out, std::FILE* err, std::optional<size_t> terminal_columns)
    : out_(out),
      err_(err),
      terminal_(terminal_columns.has_value()),
      colour_(false),
      progress_(false),
      columns_(terminal_columns.value_or(kColumnsDefault)) {}

std::string Console::Paint(std::string_view text, Colour colour) const {
  if (!colour_ || colour == Colour::kNone) return std::string(text);
  return fmt::format("{}{}\x1b[0m", Code(colour), text);
}

std::string Console::Fold(std::string_view line, size_t hanging) const {
  if (!terminal_ || hanging + kFoldedColumnsMin > columns_) return std::string(line) + "\n";
  std::string folded;
  std::string_view rest = line;
  for (size_t indent = 0; !rest.empty() || folded.empty(); indent = hanging) {
    folded += fmt::format("{:{}}{}\n", "", indent, TakeLine(&rest, columns_ - indent));
  }
  return folded;
}

void Console::PrintData(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), out_) != text.size() && write_errno_ == 0) write_errno_ = errno;
}

// What the stream held is gone where that fails, and a later flush would find nothing amiss.
void Console::Flush() {
  if (std::fflush(out_) != 0 && write_errno_ == 0) write_errno_ = errno;
}

absl::Status Console::FlushData() {
  Flush();
  return write_errno_ == 0 ? absl::OkStatus() : WriteError(write_errno_);
}

// Of no bytes a write does nothing else than look at how the file was opened. A stream in memory has none.
absl::Status Console::CheckData() const {
  const int file = fileno(out_);
  return file >= 0 && write(file, "", 0) < 0 ? WriteError(errno) : absl::OkStatus();
}

void Console::Note(std::string_view text) {
  ShowProgress("");
  // Data that was printed first is seen first where both streams are one terminal.
  Flush();
  const std::string line = fmt::format("checkpoint-inspect: {}\n", Escape(text));
  std::fwrite(line.data(), 1, line.size(), err_);
}

void Console::Warn(std::string_view text) { Note(fmt::format("warning: {}", text)); }

void Console::Fail(std::string_view text) { Note(fmt::format("error: {}", text)); }

void Console::Fail(const absl::Status& status) { Fail(std::string(status.message())); }

// Of a line that a terminal breaks only the last part could be rewritten; and some break it as soon as the last column
// is written.
size_t Console::ProgressColumns() const {
  size_t columns = TerminalColumns(STDERR_FILENO);
  if (columns == 0) columns = WantedColumns();
  if (columns == 0) columns = kColumnsDefault;
  return std::max<size_t>(columns, 2) - 1;
}

void Console::ShowProgress(std::string_view line) {
  if (!progress_ || (line.empty() && shown_columns_ == 0)) return;
  const size_t columns_max = ProgressColumns();
  const std::string shown = Shorten(line, columns_max);
  const size_t columns = DisplayWidth(shown);
  // Overwritten with spaces, so that no escape codes are needed where none are wanted. The terminal may have become
  // narrower since.
  const size_t shown_before = std::min(shown_columns_, columns_max);
  const size_t cleared = shown_before > columns ? shown_before - columns : 0;
  const std::string out = fmt::format("\r{}{:{}}{}", shown, "", cleared, shown.empty() ? "\r" : "");
  std::fwrite(out.data(), 1, out.size(), err_);
  std::fflush(err_);
  shown_columns_ = columns;
}

}  // namespace tidemark::inspect
