#include "bench/progress.h"

#include <unistd.h>

#include "fmt/format.h"

namespace tidemark::bench {

Progress::Progress() : is_terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::BeginRow(size_t number, size_t count, std::string_view name) {
  const absl::MutexLock lock(&mutex_);
  row_ = fmt::format("[{:>2}/{}] {}", number, count, name);
  Show("");
}

void Progress::Pair(int pair, int pairs) {
  const absl::MutexLock lock(&mutex_);
  Show(fmt::format(": pair {} of {}", pair, pairs));
}

void Progress::Say(std::string_view what) {
  const absl::MutexLock lock(&mutex_);
  Show(fmt::format(": {}", what));
}

void Progress::EndRow(std::string_view result) {
  const absl::MutexLock lock(&mutex_);
  Erase();
  fmt::print(stderr, "{}: {}\n", row_, result);
}

void Progress::Warn(std::string_view line) {
  const absl::MutexLock lock(&mutex_);
  Erase();
  fmt::print(stderr, "tidemark-bench: {}\n", line);
}

void Progress::Show(std::string_view what) {
  if (!is_terminal_) return;
  Erase();
  fmt::print(stderr, "{}{}", row_, what);
}

void Progress::Erase() {
  if (is_terminal_) fmt::print(stderr, "\r\033[K");
}

}  // namespace tidemark::bench
