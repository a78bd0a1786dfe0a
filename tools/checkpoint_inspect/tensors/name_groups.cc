#include "tools/checkpoint_inspect/tensors/name_groups.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace tidemark::inspect {
namespace {

// Names that agree in their first `prefix` bytes, which end with a divider or are none.
struct Candidate {
  size_t prefix = 0;
  std::string ending;  // a divider and the last part that all of them share; empty: they need not share one
  std::vector<size_t> members;
  bool final = false;  // cannot be split, or not within the room that was left
};

// Where the part of `name` ends that begins at `begin`, its divider included.
size_t PartEnd(std::string_view name, size_t begin) {
  const size_t divider = name.find_first_of("./", begin);
  return divider == std::string_view::npos ? name.size() : divider + 1;
}

// Of names that come apart into more than `parts_max` parts it tells only so many parts and one, the last of them
// incomplete.
std::vector<Candidate> Split(std::span<const std::string> names, const Candidate& whole, size_t parts_max) {
  std::vector<Candidate> parts;
  std::map<std::string_view, size_t> part_of;
  for (const size_t member : whole.members) {
    const std::string_view name = names[member];
    const size_t end = PartEnd(name, std::min(whole.prefix, name.size()));
    const auto [found, is_new] = part_of.try_emplace(name.substr(0, end), parts.size());
    if (is_new) parts.push_back({.prefix = end, .ending = whole.ending, .members = {}});
    parts[found->second].members.push_back(member);
    if (parts.size() > parts_max) break;
  }
  return parts;
}

std::vector<NameGroup> Runs(std::span<const std::string> names, size_t groups_max) {
  const size_t length = (names.size() + groups_max - 1) / groups_max;
  std::vector<NameGroup> groups;
  for (size_t begin = 0; begin < names.size(); begin += length) {
    const size_t end = std::min(begin + length, names.size());
    NameGroup group{.label = names[begin], .members = {}};
    if (end - begin > 1) group.label += " … " + names[end - 1];
    for (size_t i = begin; i < end; ++i) group.members.push_back(i);
    groups.push_back(std::move(group));
  }
  return groups;
}

// From how many names of each last part on it counts as a word that tells what a tensor is, and how many such words
// there may be.
constexpr size_t kNamesOfEnding = 8;
constexpr size_t kEndingsMax = 6;

// The groups to begin with: by last part, or one of all.
std::vector<Candidate> ByEnding(std::span<const std::string> names, size_t groups_max) {
  std::vector<Candidate> endings;
  std::map<std::string_view, size_t> candidate_of;
  const size_t endings_max = std::min({kEndingsMax, groups_max, names.size() / kNamesOfEnding});
  for (size_t i = 0; i < names.size() && endings.size() <= endings_max; ++i) {
    const size_t divider = names[i].find_last_of("./");
    // A name of one part has no ending.
    const std::string_view ending = divider == std::string::npos ? "" : std::string_view(names[i]).substr(divider);
    const auto [found, is_new] = candidate_of.try_emplace(ending, endings.size());
    if (is_new) endings.push_back({.ending = std::string(ending), .members = {}});
    endings[found->second].members.push_back(i);
  }
  if (endings.size() <= endings_max) return endings;
  std::vector<Candidate> all(1);
  for (size_t i = 0; i < names.size(); ++i) all[0].members.push_back(i);
  return all;
}

}  // namespace

std::vector<NameGroup> GroupNames(std::span<const std::string> names, size_t groups_max) {
  if (names.size() <= groups_max) return Runs(names, names.size() + 1);
  std::vector<Candidate> candidates = ByEnding(names, groups_max);
  while (true) {
    const auto largest =
        std::max_element(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
          return (a.final ? 0 : a.members.size()) < (b.final ? 0 : b.members.size());
        });
    if (largest->final) break;
    const size_t parts_max = groups_max - candidates.size() + 1;
    std::vector<Candidate> parts = Split(names, *largest, parts_max);
    const bool is_name = parts.size() == 1 && parts[0].prefix == largest->prefix;
    if (largest->members.size() == 1 || is_name || parts.size() > parts_max) {
      largest->final = true;
      continue;
    }
    *largest = std::move(parts[0]);
    candidates.insert(candidates.end(), std::make_move_iterator(parts.begin() + 1),
                      std::make_move_iterator(parts.end()));
  }
  if (candidates.size() == 1 && candidates[0].prefix == 0 && candidates[0].ending.empty())
    return Runs(names, groups_max);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.members[0] < b.members[0]; });
  std::vector<NameGroup> groups;
  for (Candidate& candidate : candidates) {
    const std::string& first = names[candidate.members[0]];
    const bool alone = candidate.members.size() == 1;
    groups.push_back({.label = alone ? first : first.substr(0, candidate.prefix) + "*" + candidate.ending,
                      .members = std::move(candidate.members)});
  }
  return groups;
}

}  // namespace tidemark::inspect
