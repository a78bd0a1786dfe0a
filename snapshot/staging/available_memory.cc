#include "snapshot/staging/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "fmt/format.h"

namespace tidemark {
namespace {

// The files of a memory cgroup: each version has its own names.
struct CgroupFiles {
  std::string_view mount;  // where the hierarchy is, below the root
  std::string_view limit;
  std::string_view usage;
  std::string_view caches[2];  // keys of memory.stat: pages of files, which can be dropped
};

constexpr CgroupFiles kVersion1 = {"sys/fs/cgroup/memory",
                                   "memory.limit_in_bytes",
                                   "memory.usage_in_bytes",
                                   {"total_inactive_file", "total_active_file"}};
constexpr CgroupFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};
// For systems that mount both versions side by side.
constexpr CgroupFiles kVersion2Beside1 = {
    "sys/fs/cgroup/unified", "memory.max", "memory.current", {"inactive_file", "active_file"}};

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t number = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &number)) return std::nullopt;  // "max" is not a number
  return number;
}

// The number behind a key of a file with a line "KEY NUMBER" or "KEY NUMBER kB" for each.
std::optional<uint64_t> ReadField(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string name, rest; file >> name && std::getline(file, rest);) {
    const std::vector<std::string> words = absl::StrSplit(rest, ' ', absl::SkipEmpty());
    uint64_t number = 0;
    if (name == key && !words.empty() && absl::SimpleAtoi(words.front(), &number)) return number;
  }
  return std::nullopt;
}

void Limit(AvailableMemory& available, uint64_t bytes, std::string limit) {
  if (bytes < available.bytes) available = {.bytes = bytes, .limit = std::move(limit)};
}

// The least memory that a cgroup from `path` up to the root of the hierarchy has left.
void LimitByCgroups(AvailableMemory& available, const std::string& root, const CgroupFiles& files, std::string path) {
  for (;;) {
    const std::string folder = fmt::format("{}{}{}/", root, files.mount, path == "/" ? "" : path);
    const std::optional<uint64_t> limit = ReadNumber(folder + std::string(files.limit));
    const std::optional<uint64_t> usage = ReadNumber(folder + std::string(files.usage));
    if (limit && usage) {
      uint64_t held = *usage;
      for (const std::string_view cache : files.caches) {
        held -= std::min(held, ReadField(folder + "memory.stat", cache).value_or(0));
      }
      Limit(available, *limit - std::min(*limit, held), folder + std::string(files.limit));
    }
    if (path.size() <= 1) return;
    path.erase(std::max<size_t>(path.rfind('/'), 1));
  }
}

}  // namespace

AvailableMemory ReadAvailableMemory(const std::string& root) {
  AvailableMemory available;
  const std::string meminfo = root + "proc/meminfo";
  if (const auto kib = ReadField(meminfo, "MemAvailable:")) Limit(available, *kib * 1024, "MemAvailable of " + meminfo);
  std::ifstream cgroups(root + "proc/self/cgroup");
  // "0::/path" of version 2, "4:memory:/path" of version 1.
  for (std::string line; std::getline(cgroups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || !fields[2].starts_with('/')) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[1].empty()) {
      LimitByCgroups(available, root, kVersion2, fields[2]);
      LimitByCgroups(available, root, kVersion2Beside1, fields[2]);
    } else if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      LimitByCgroups(available, root, kVersion1, fields[2]);
    }
  }
  return available;
}

}  // namespace tidemark
