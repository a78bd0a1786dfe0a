#include "fuzz/hostile_case.h"

#include <algorithm>

namespace tidemark::fuzz {

std::vector<HostileCase> HostileCases() {
  std::vector<HostileCase> cases;
  for (auto make : {HostileFrames, HostileIndices, HostileChunks, HostileTexts, HostileSafetensors}) {
    for (HostileCase& hostile : make()) cases.push_back(std::move(hostile));
  }
  std::sort(cases.begin(), cases.end(), [](const auto& a, const auto& b) { return a.file < b.file; });
  return cases;
}

std::string HostileTable(const std::vector<HostileCase>& cases) {
  std::string table;
  for (const HostileCase& hostile : cases) {
    table += hostile.file + "\t" + absl::StatusCodeToString(hostile.code) + "\t" + hostile.message + "\n";
  }
  return table;
}

}  // namespace tidemark::fuzz
