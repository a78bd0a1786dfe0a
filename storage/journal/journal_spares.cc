#include "storage/journal/journal_spares.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "storage/io/check.h"

namespace tidemark::storage {

void JournalSpares::FindLeft(const JournalFiles& files, EntryNumber last) {
  for (const EntryNumber number : {last + 1, LastOfFolder(last + 1) + 1}) {
    const std::string folder = files.FolderOf(number);
    const auto entries = files.file_system().ListDirectory(folder);
    if (!entries.ok()) continue;  // they are only room
    for (const DirectoryEntry& entry : *entries) {
      if (entry.name.starts_with(kSparePrefix)) left_[LastOfFolder(number)].push_back(folder + "/" + entry.name);
    }
  }
}

std::vector<std::string> JournalSpares::TakeLeft() {
  std::vector<std::string> taken;
  for (const auto& [last, paths] : std::exchange(left_, {})) taken.insert(taken.end(), paths.begin(), paths.end());
  return taken;
}

size_t JournalSpares::CountOf(const Paths& paths) {
  size_t count = 0;
  for (const auto& [last, in_folder] : paths) count += in_folder.size();
  return count;
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
  const EntryNumber last = LastOfFolder(number);
  // The folders before it are full.
  spares_.erase(spares_.begin(), spares_.lower_bound(last));
  while (CountOf(spares_) > (frees_room ? 0 : kSparesMin)) {
    auto& paths = spares_[last];
    if (paths.empty()) break;
    const std::string path = std::move(paths.back());
    paths.pop_back();
    auto written = WriteOver(files, path, bytes);
    if (!written.ok() || written->has_value()) return written;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<std::string>> JournalSpares::WriteOverLeft(const JournalFiles& files, EntryNumber number,
                                                                        std::string_view bytes, bool frees_room) {
  const EntryNumber last = LastOfFolder(number);
  while (CountOf(spares_) + CountOf(left_) > (frees_room ? 0 : kSparesMin)) {
    auto& paths = left_[last];
    if (paths.empty()) break;
    const std::string theirs = std::move(paths.back());
    paths.pop_back();
    // Of two processes one has it then.
    const std::string path = files.NewPath(number, kSparePrefix);
    if (!files.file_system().Rename(theirs, path).ok()) continue;
    auto written = WriteOver(files, path, bytes);
    if (!written.ok() || written->has_value()) return written;
  }
  return std::nullopt;
}

// No value: the file cannot serve.
absl::StatusOr<std::optional<std::string>> JournalSpares::WriteOver(const JournalFiles& files, const std::string& path,
                                                                    std::string_view bytes) {
  Check(bytes.size() == kSpareBytes, "an entry is written over a spare that it does not fill");
  // Refused if it has a second name, or if another process is at it. Then it is not a spare.
  auto file = files.file_system().OpenForRewrite(path, /*direct=*/false);
  if (!file.ok()) return std::nullopt;
  absl::StatusOr<uint64_t> size = (*file)->Size();
  if (size.ok() && *size != kSpareBytes) return std::nullopt;
  absl::Status status = size.status();
  if (status.ok()) status = (*file)->WriteAt(0, std::as_bytes(std::span(bytes)));
  if (status.ok()) status = (*file)->SyncData();
  status.Update((*file)->Close());
  if (status.ok()) return path;
  // A file whose sync failed gets no number.
  files.file_system().RemoveFile(path).IgnoreError();
  return status;
}

}  // namespace tidemark::storage
