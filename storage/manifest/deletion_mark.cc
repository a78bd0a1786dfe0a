#include "storage/manifest/deletion_mark.h"

#include <vector>

#include "storage/manifest/folder_note.h"

namespace tidemark::storage {

std::string DeletionMarkPath(const StoreLayout& layout, const StepFolder& folder) {
  return layout.attempt(folder.step, folder.attempt) + "/deleted.json";
}

absl::Status RemoveDeletionMark(FileSystem& files, const StoreLayout& layout, const StepFolder& folder) {
  absl::Status status = files.RemoveFile(DeletionMarkPath(layout, folder));
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  return files.SyncDirectory(layout.attempt(folder.step, folder.attempt));
}

absl::Status WriteDeletionMark(FileSystem& files, const StoreLayout& layout, const StepFolder& folder,
                               std::string_view reason) {
  return WriteFolderNote(files, DeletionMarkPath(layout, folder), reason.substr(0, kFolderNoteBytesMax));
}

absl::StatusOr<bool> HasDeletionMark(FileSystem& files, const StoreLayout& layout, const StepFolder& folder) {
  absl::StatusOr<FileType> type = files.TypeOf(DeletionMarkPath(layout, folder));
  if (absl::IsNotFound(type.status())) return false;
  if (!type.ok()) return type.status();
  return true;
}

absl::StatusOr<std::optional<std::string>> ReadDeletionMark(FileSystem& files, const StoreLayout& layout,
                                                            const StepFolder& folder) {
  absl::StatusOr<std::optional<FolderNote>> note = ReadFolderNote(files, DeletionMarkPath(layout, folder));
  if (!note.ok()) return note.status();
  if (!note->has_value()) return std::nullopt;
  return (*note)->text;
}

absl::Status RemoveAttempt(FileSystem& files, const StoreLayout& layout, const StepFolder& folder) {
  const std::string path = layout.attempt(folder.step, folder.attempt);
  const absl::StatusOr<bool> marked = HasDeletionMark(files, layout, folder);
  if (!marked.ok()) return marked.status();
  if (*marked) {
    const absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(path);
    if (!entries.ok()) return entries.status();
    for (const DirectoryEntry& entry : *entries) {
      const std::string inside = path + "/" + entry.name;
      if (inside == DeletionMarkPath(layout, folder)) continue;
      if (absl::Status status = RemoveTree(files, inside); !status.ok()) return status;
    }
    // A shard may have gone to the store's own directory: until both are synced power loss may take it back.
    absl::Status status = files.SyncDirectory(path);
    if (status.ok()) status = files.SyncDirectory(layout.directory());
    if (!status.ok()) return status;
  }
  return RemoveTree(files, path);
}

}  // namespace tidemark::storage
