#include "storage/io/fresh_look.h"

#include <memory>

#include "absl/status/statusor.h"

namespace tidemark::storage {

void LookAfresh(FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::unique_ptr<File>> file = files.Create(path, /*direct=*/false);
  if (file.ok()) files.RemoveFile(path).IgnoreError();
}

}  // namespace tidemark::storage
