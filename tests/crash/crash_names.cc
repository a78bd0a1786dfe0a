#include "tests/crash/crash_names.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tidemark::crash {
namespace {

std::optional<storage::LostOperation> ParseLost(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  storage::LostOperation lost;
  uint64_t index = 0;
  if (parts.size() > 2 || !absl::SimpleAtoi(parts[0], &index)) return std::nullopt;
  if (parts.size() == 2 && !absl::SimpleHexAtoi(parts[1], &lost.sector_mask)) return std::nullopt;
  lost.index = index;
  return lost;
}

// What stands behind the "!".
bool ParseIndex(absl::string_view text, Disaster& disaster) {
  if (text.empty()) {
    disaster.index = IndexFate::kLost;
    return true;
  }
  if (text == "x") {
    disaster.index = IndexFate::kForeign;
    return true;
  }
  if (text == "=") {
    disaster.index = IndexFate::kOpen;
    return true;
  }
  if (absl::ConsumePrefix(&text, "~")) {
    disaster.index = IndexFate::kFlipped;
    return absl::SimpleHexAtoi(text, &disaster.draw);
  }
  disaster.index = IndexFate::kOld;
  return absl::SimpleAtoi(text, &disaster.draw);
}

std::string NameOfIndex(const Disaster& disaster) {
  switch (disaster.index) {
    case IndexFate::kKept:
      return "";
    case IndexFate::kLost:
      return "!";
    case IndexFate::kOld:
      return absl::StrCat("!", disaster.draw);
    case IndexFate::kFlipped:
      return absl::StrCat("!~", absl::Hex(disaster.draw));
    case IndexFate::kForeign:
      return "!x";
    case IndexFate::kOpen:
      return "!=";
  }
  return "";
}

}  // namespace

std::string NameOf(const Disaster& disaster) {
  std::string name = absl::StrCat(disaster.crash.prefix);
  for (const storage::LostOperation& lost : disaster.crash.lost) {
    absl::StrAppend(&name, "-", lost.index);
    if (lost.sector_mask != ~uint64_t{0}) absl::StrAppend(&name, ":", absl::Hex(lost.sector_mask));
  }
  return name + NameOfIndex(disaster);
}

std::optional<std::vector<Disaster>> ParseDisasters(std::string_view text) {
  std::vector<Disaster> disasters;
  for (absl::string_view name : absl::StrSplit(absl::string_view(text.data(), text.size()), '/')) {
    Disaster disaster;
    if (const size_t mark = name.find('!'); mark != absl::string_view::npos) {
      if (!ParseIndex(name.substr(mark + 1), disaster)) return std::nullopt;
      name.remove_suffix(name.size() - mark);
    }
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
    uint64_t prefix = 0;
    if (!absl::SimpleAtoi(parts[0], &prefix)) return std::nullopt;
    disaster.crash.prefix = prefix;
    for (size_t i = 1; i < parts.size(); ++i) {
      const auto lost = ParseLost(parts[i]);
      if (!lost) return std::nullopt;
      disaster.crash.lost.push_back(*lost);
    }
    if (disaster.index == IndexFate::kOpen && !disaster.crash.lost.empty()) return std::nullopt;
    disasters.push_back(std::move(disaster));
  }
  return disasters;
}

}  // namespace tidemark::crash
