#include "fuzz/hostile_case.h"

#include <algorithm>
#include <fstream>

namespace tidemark::fuzz {

bool WriteHostileFile(const HostileCase& hostile, const std::string& path) {
  const std::string_view bytes = hostile.bytes;
  const size_t hole_at = hostile.hole_bytes > 0 ? hostile.hole_at : bytes.size();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes.substr(0, hole_at);
  for (uint64_t at = 0; hostile.island_every > 0 && at < hostile.hole_bytes; at += hostile.island_every) {
    out.seekp(static_cast<std::streamoff>(hole_at + at));
    out.put('x');
  }
  out.seekp(static_cast<std::streamoff>(hole_at + hostile.hole_bytes));
  out << bytes.substr(hole_at);
  return static_cast<bool>(out.flush());
}

std::vector<HostileCase> HostileCases() {
  std::vector<HostileCase> cases;
  for (auto make : {HostileFrames, HostileIndices, HostileChunks, HostileCosts, HostileTexts, HostileJournals,
                    HostileSafetensors, HostileTorchFiles}) {
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
