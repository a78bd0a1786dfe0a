#include "storage/manifest/leased_attempts.h"

#include <string_view>
#include <vector>

namespace tidemark::storage {

absl::StatusOr<std::set<AttemptId>> LeasedAttempts(FileSystem& files, const StoreLayout& layout) {
  constexpr std::string_view kEnd = ".lease";
  constexpr size_t kIdDigits = 32;
  std::set<AttemptId> leased;
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.leases());
  if (absl::IsNotFound(entries.status())) return leased;
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    const std::string_view name = entry.name;
    if (!name.ends_with(kEnd) || name.find('-') != kIdDigits) continue;
    if (const auto id = FromHex(name.substr(0, kIdDigits))) leased.insert(AttemptId{*id});
  }
  return leased;
}

}  // namespace tidemark::storage
