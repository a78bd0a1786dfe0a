#include "snapshot/glob.h"

namespace tidemark {

bool GlobMatches(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;  // the last '*' seen, and where the text after it is tried
  size_t retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool IsRenamedBy(std::string_view name, const std::pair<std::string, std::string>& rename) {
  return name.starts_with(rename.first) && (name.size() == rename.first.size() || name[rename.first.size()] == '.');
}

std::string Renamed(std::string_view name, const std::vector<std::pair<std::string, std::string>>& renames) {
  for (const auto& rename : renames) {
    if (IsRenamedBy(name, rename)) return rename.second + std::string(name.substr(rename.first.size()));
  }
  return std::string(name);
}

}  // namespace tidemark
