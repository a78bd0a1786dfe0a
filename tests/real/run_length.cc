#include "tests/real/run_length.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark {

int RunLength(const char* variable, int otherwise) {
  if (const char* given = std::getenv(variable); given != nullptr) return std::atoi(given);
  return storage::kAddressSanitizer || storage::kThreadSanitizer ? std::max(1, otherwise / 8) : otherwise;
}

void Summarize(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
  if (const char* path = std::getenv("TIDEMARK_SUMMARY"); path != nullptr)
    std::ofstream(path, std::ios::app) << line << "\n";
}

RunProgress::RunProgress(std::string what, int total)
    : what_(std::move(what)), total_(total), is_terminal_(isatty(STDOUT_FILENO) == 1), begin_(absl::Now()) {}

void RunProgress::End() {
  if (is_terminal_) fmt::print("\r\033[K");
  std::fflush(stdout);
}

void RunProgress::Show(int done, const std::string& figures) {
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin_);
  const double left = done > 0 ? seconds / done * (total_ - done) : 0;
  const std::string line =
      fmt::format("{}: {} of {}, {}; {:.0f} s, {:.0f} s left", what_, done, total_, figures, seconds, left);
  if (is_terminal_) {
    fmt::print("\r\033[K{}", line);
  } else if (const int tenths = total_ > 0 ? 10 * done / total_ : 10; tenths > tenths_shown_ && seconds > 10) {
    tenths_shown_ = tenths;
    fmt::print("{}\n", line);
  }
  std::fflush(stdout);
}

}  // namespace tidemark
