#include "storage/manifest/disk_reserve.h"

#include <memory>

namespace tidemark::storage {

bool SetRoomAside(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::unique_ptr<File>> file = files.Create(layout.reserve(), /*direct=*/false);
  // A crash may have left the name without the room.
  if (absl::IsAlreadyExists(file.status())) file = files.OpenForRewrite(layout.reserve(), /*direct=*/false);
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
