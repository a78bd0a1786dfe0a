#include "storage/store/quarantine.h"

#include <string>

namespace tidemark::storage {

absl::Status MoveToQuarantine(FileSystem& files, const StoreLayout& layout, const StepFolder& folder) {
  absl::Status status = files.CreateDirectory(layout.quarantine());
  if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  // Before anything is in it: power loss may not take that along with an unsynced name.
  if (status = files.SyncDirectory(layout.directory()); !status.ok()) return status;
  const std::string from = layout.attempt(folder.step, folder.attempt);
  const std::string to = layout.quarantine() + "/" + StepFolderName(folder.step, folder.attempt);
  status = files.Rename(from, to);
  // A person may have put a copy back that is still there.
  if (absl::IsAlreadyExists(status)) status = files.Rename(from, to + "-" + ToHex(RandomBytes16()));
  if (status.ok()) status = files.SyncDirectory(layout.quarantine());
  if (status.ok()) status = files.SyncDirectory(layout.steps());
  return status;
}

}  // namespace tidemark::storage
