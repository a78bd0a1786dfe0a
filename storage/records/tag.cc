#include "storage/records/tag.h"

#include <algorithm>
#include <functional>

#include "fmt/format.h"
#include "storage/io/printable_text.h"

namespace tidemark::storage {
namespace {

bool MayBeInTag(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '/' || c == '-';
}

}  // namespace

absl::Status CheckTag(std::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError("a tag is empty");
  if (name.size() > kTagBytesMax) {
    return absl::InvalidArgumentError(fmt::format("a tag has {} bytes; at most {}", name.size(), kTagBytesMax));
  }
  if (name.front() == '-') {
    return absl::InvalidArgumentError(fmt::format("tag '{}' begins with '-'", PrintableText(name)));
  }
  if (std::all_of(name.begin(), name.end(), MayBeInTag)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("tag '{}' has a character other than letters, digits, '.', '_', '/' and '-'", PrintableText(name)));
}

absl::Status CheckTags(const std::vector<std::string>& tags) {
  if (tags.size() > kTagsPerStepMax) {
    return absl::InvalidArgumentError(fmt::format("{} tags; at most {}", tags.size(), kTagsPerStepMax));
  }
  for (const std::string& tag : tags) {
    if (absl::Status status = CheckTag(tag); !status.ok()) return status;
  }
  if (std::adjacent_find(tags.begin(), tags.end(), std::greater_equal<>()) == tags.end()) return absl::OkStatus();
  return absl::InvalidArgumentError("tags are not in ascending order without repetition");
}

bool AddTag(std::vector<std::string>& tags, std::string_view name) {
  const auto place = std::lower_bound(tags.begin(), tags.end(), name);
  if (place != tags.end() && *place == name) return false;
  if (tags.size() >= kTagsPerStepMax || !CheckTag(name).ok()) return false;
  tags.emplace(place, name);
  return true;
}

bool RemoveTag(std::vector<std::string>& tags, std::string_view name) {
  const auto place = std::lower_bound(tags.begin(), tags.end(), name);
  if (place == tags.end() || *place != name) return false;
  tags.erase(place);
  return true;
}

bool HasTag(const std::vector<std::string>& tags, std::string_view name) {
  return std::binary_search(tags.begin(), tags.end(), name);
}

}  // namespace tidemark::storage
