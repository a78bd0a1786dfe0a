#include "tools/checkpoint_inspect/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

constexpr size_t kColumnsMin = 40;
constexpr size_t kColumnsMax = 400;
constexpr size_t kColumnsDefault = 80;

size_t TerminalColumns() {
  const std::string_view wanted = Environment("COLUMNS");
  size_t columns = 0;
  std::from_chars(wanted.data(), wanted.data() + wanted.size(), columns);
  if (winsize size = {}; columns == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
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

}  // namespace

Console::Console()
    : out_(stdout),
      err_(stderr),
      terminal_(isatty(STDOUT_FILENO) == 1),
      colour_(terminal_ && Environment("NO_COLOR").empty() && Environment("TERM") != "dumb"),
      progress_(isatty(STDERR_FILENO) == 1),
      columns_(TerminalColumns()) {}

Console::Console(std::FILE* out, std::FILE* err)
    : out_(out), err_(err), terminal_(false), colour_(false), progress_(false), columns_(kColumnsDefault) {}

std::string Console::Paint(std::string_view text, Colour colour) const {
  if (!colour_ || colour == Colour::kNone) return std::string(text);
  return fmt::format("{}{}\x1b[0m", Code(colour), text);
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
  if (write_errno_ == 0) return absl::OkStatus();
  return absl::DataLossError(fmt::format("write to standard output: {}", std::strerror(write_errno_)));
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

void Console::ShowProgress(std::string_view line) {
  if (!progress_ || (line.empty() && progress_columns_ == 0)) return;
  // Overwritten with spaces, so that no escape codes are needed where none are wanted.
  const size_t columns = DisplayWidth(line);
  const size_t cleared = progress_columns_ > columns ? progress_columns_ - columns : 0;
  const std::string out = fmt::format("\r{}{:{}}{}", line, "", cleared, line.empty() ? "\r" : "");
  std::fwrite(out.data(), 1, out.size(), err_);
  std::fflush(err_);
  progress_columns_ = columns;
}

}  // namespace tidemark::inspect
