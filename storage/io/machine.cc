#include "storage/io/machine.h"

#include <sys/utsname.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "fmt/format.h"

namespace tidemark::storage {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string ValueOf(std::string_view text, std::string_view name) {
  for (const absl::string_view line : absl::StrSplit(View(text), '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(parts.first) == View(name)) {
      return std::string(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return "";
}

std::string FileSystemOf(std::string_view mount_info, std::string_view path) {
  std::string found = "unknown";
  size_t found_length = 0;
  for (const absl::string_view line : absl::StrSplit(View(mount_info), '\n')) {
    // ID PARENT MAJOR:MINOR ROOT MOUNT_POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS
    const std::vector<std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() < 2) continue;
    const std::vector<std::string> mount = absl::StrSplit(halves[0], ' ');
    const std::vector<std::string> source = absl::StrSplit(halves[1], ' ');
    if (mount.size() < 5 || source.size() < 2) continue;
    const std::string& point = mount[4];
    const bool inside = point == "/" || path == point || path.starts_with(point + "/");
    // A later mount at the same place hides the earlier one.
    if (inside && point.size() >= found_length) {
      found = source[0] + " on " + source[1];
      found_length = point.size();
    }
  }
  return found;
}

Machine DescribeMachine(const std::string& folder) {
  Machine machine;
  machine.cpu = ValueOf(Contents("/proc/cpuinfo"), "model name");
  if (machine.cpu.empty()) machine.cpu = "unknown";
  machine.cores = std::thread::hardware_concurrency();
  machine.memory_bytes = std::strtoull(ValueOf(Contents("/proc/meminfo"), "MemTotal").c_str(), nullptr, 10) * 1024;
  utsname name{};
  uname(&name);
  machine.kernel = fmt::format("{} {}", name.sysname, name.release);
  std::error_code error;
  const std::string path = std::filesystem::canonical(folder, error).string();
  machine.file_system = FileSystemOf(Contents("/proc/self/mountinfo"), path);
  return machine;
}

}  // namespace tidemark::storage
