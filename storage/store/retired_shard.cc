#include "storage/store/retired_shard.h"

#include <vector>

namespace tidemark::storage {

void RetireShard(FileSystem& files, const StoreLayout& layout, const std::string& attempt_folder) {
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(attempt_folder);
  if (!entries.ok()) return;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.type != FileType::kRegular || !entry.name.ends_with(".tmk")) continue;
    files.Rename(attempt_folder + "/" + entry.name, layout.retired()).IgnoreError();
    return;
  }
}

bool RecycleShard(FileSystem& files, const StoreLayout& layout, const std::string& path) {
  return files.Rename(layout.retired(), path).ok();
}

void DropRetiredShard(FileSystem& files, const StoreLayout& layout) {
  files.RemoveFile(layout.retired()).IgnoreError();  // it is only room, and the next one takes its place
}

}  // namespace tidemark::storage
