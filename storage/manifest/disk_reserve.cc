#include "storage/manifest/disk_reserve.h"

#include <cstdint>
#include <memory>
#include <string>

namespace tidemark::storage {
namespace {

uint64_t BytesOf(FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::unique_ptr<File>> file = files.OpenForRead(path, /*direct=*/false);
  return file.ok() ? (*file)->Size().value_or(0) : 0;
}

}  // namespace

bool SetRoomAside(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::unique_ptr<File>> file = files.Create(layout.reserve(), /*direct=*/false);
  if (absl::IsAlreadyExists(file.status())) {
    if (BytesOf(files, layout.reserve()) >= kDiskReserveBytes) return true;
    // A crash may have left the name without the room.
    file = files.OpenForRewrite(layout.reserve(), /*direct=*/false);
  }
  if (!file.ok()) return !absl::IsResourceExhausted(file.status());
  absl::Status status = (*file)->Allocate(kDiskReserveBytes);
  status.Update((*file)->Close());
  if (!status.ok()) files.RemoveFile(layout.reserve()).IgnoreError();
  return !absl::IsResourceExhausted(status);
}

bool GiveUpRoom(FileSystem& files, const StoreLayout& layout) {
  const bool reserve = files.RemoveFile(layout.reserve()).ok();
  const bool retired = files.RemoveFile(layout.retired()).ok();
  return reserve || retired;
}

}  // namespace tidemark::storage
