#include "storage/journal/journal_spares.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "storage/io/check.h"

namespace tidemark::storage {

void JournalSpares::Adopt(const JournalFiles& files, EntryNumber last) {
  for (const EntryNumber number : {last + 1, LastOfFolder(last + 1) + 1}) {
    const std::string folder = files.FolderOf(number);
    const auto entries = files.file_system().ListDirectory(folder);
    if (!entries.ok()) continue;  // they are only room
    for (const DirectoryEntry& entry : *entries) {
      if (!entry.name.starts_with(kSparePrefix)) continue;
      std::string path = files.NewPath(number, kSparePrefix);
      if (files.file_system().Rename(folder + "/" + entry.name, path).ok()) Add(number, std::move(path));
    }
  }
}

size_t JournalSpares::size() const {
  size_t size = 0;
  for (const auto& [last, paths] : spares_) size += paths.size();
  return size;
}

std::vector<EntryNumber> JournalSpares::Missing(EntryNumber last, size_t count) const {
  std::vector<EntryNumber> missing;
  for (EntryNumber number = last + 1; number <= last + count;) {
    const EntryNumber end = std::min(LastOfFolder(number), last + count);
    const auto there = spares_.find(LastOfFolder(number));
    for (number += there == spares_.end() ? 0 : there->second.size(); number <= end; ++number)
      missing.push_back(number);
    number = end + 1;
  }
  return missing;
}

absl::StatusOr<std::string> JournalSpares::Make(const JournalFiles& files, EntryNumber number) {
  return files.WriteNew(number, kSparePrefix, std::string(kSpareBytes, '\0'));
}

absl::StatusOr<std::optional<std::string>> JournalSpares::Write(const JournalFiles& files, EntryNumber number,
                                                                std::string_view bytes, bool frees_room) {
  Check(bytes.size() == kSpareBytes, "an entry is written over a spare that it does not fill");
  const EntryNumber last = LastOfFolder(number);
  // The folders before it are full.
  spares_.erase(spares_.begin(), spares_.lower_bound(last));
  while (size() > (frees_room ? 0 : kSparesMin)) {
    auto& paths = spares_[last];
    if (paths.empty()) break;
    std::string path = std::move(paths.back());
    paths.pop_back();
    // Refused if it has a second name, or if another process is at it. Then it is not a spare.
    auto file = files.file_system().OpenForRewrite(path, /*direct=*/false);
    if (!file.ok()) continue;
    const absl::StatusOr<uint64_t> size = (*file)->Size();
    if (size.ok() && *size != kSpareBytes) continue;
    absl::Status status = size.status();
    if (status.ok()) status = (*file)->WriteAt(0, std::as_bytes(std::span(bytes)));
    if (status.ok()) status = (*file)->SyncData();
    status.Update((*file)->Close());
    if (status.ok()) return path;
    // A file whose sync failed gets no number.
    files.file_system().RemoveFile(path).IgnoreError();
    return status;
  }
  return std::nullopt;
}

}  // namespace tidemark::storage
