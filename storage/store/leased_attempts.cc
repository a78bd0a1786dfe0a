#include "storage/store/leased_attempts.h"

#include <optional>
#include <vector>

#include "storage/store/lease.h"

namespace tidemark::storage {

absl::StatusOr<std::set<AttemptId>> LeasedAttempts(FileSystem& files, const StoreLayout& layout) {
  std::set<AttemptId> leased;
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.leases());
  if (absl::IsNotFound(entries.status())) return leased;
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (entry.type != FileType::kRegular) continue;
    if (const std::optional<AttemptId> attempt = AttemptOfLeaseFile(entry.name)) leased.insert(*attempt);
  }
  return leased;
}

}  // namespace tidemark::storage
