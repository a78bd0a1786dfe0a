#include "tests/real/save_lines.h"

#include <unistd.h>

#include <cstdio>

#include "fmt/format.h"

namespace tidemark {

void WriteLine(int descriptor, std::string_view line) {
  const std::string whole = fmt::format("{}\n", line);
  if (write(descriptor, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) _exit(3);
}

// A double's hexadecimal digits are all of it.
void SaveLineWriter::Begun(int64_t step, int64_t version, double loss) {
  WriteLine(descriptor_, fmt::format("begun {} {} {:a}", step, version, loss));
}

void SaveLineWriter::Committed(int64_t version) { WriteLine(descriptor_, fmt::format("committed {}", version)); }

void SaveLineWriter::Reporting(int64_t version, double score) {
  WriteLine(descriptor_, fmt::format("reporting {} {:a}", version, score));
}

void SaveLineWriter::Reported(int64_t version, double score) {
  WriteLine(descriptor_, fmt::format("reported {} {:a}", version, score));
}

void SaveLineWriter::Pinning(int64_t step) { WriteLine(descriptor_, fmt::format("pinning {}", step)); }

void SaveLineWriter::Pinned(int64_t step, bool pinned) {
  WriteLine(descriptor_, fmt::format("pinned {} {}", step, pinned ? 1 : 0));
}

bool ReadSaveLine(const std::string& line, SaveLog& log) {
  long first = 0;
  long second = 0;
  double value = 0;
  if (std::sscanf(line.c_str(), "begun %ld %ld %la", &first, &second, &value) == 3) {
    log.Begun(first, second, value);
  } else if (std::sscanf(line.c_str(), "committed %ld", &first) == 1) {
    log.Committed(first);
  } else if (std::sscanf(line.c_str(), "reporting %ld %la", &first, &value) == 2) {
    log.Reporting(first, value);
  } else if (std::sscanf(line.c_str(), "reported %ld %la", &first, &value) == 2) {
    log.Reported(first, value);
  } else if (std::sscanf(line.c_str(), "pinning %ld", &first) == 1) {
    log.Pinning(first);
  } else if (std::sscanf(line.c_str(), "pinned %ld %ld", &first, &second) == 2) {
    log.Pinned(first, second != 0);
  } else {
    return false;
  }
  return true;
}

}  // namespace tidemark
