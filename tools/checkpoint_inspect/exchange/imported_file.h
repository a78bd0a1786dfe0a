// ImportedFile: a file of another tool, open for reading.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_IMPORTED_FILE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_IMPORTED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/unique_fd.h"

namespace tidemark::inspect {

// Immutable and thread-safe.
class ImportedFile {
 public:
  // Links are followed; what is no regular file is not opened. The message begins or ends with the path.
  static absl::StatusOr<ImportedFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // when it was opened

  // kDataLoss: the file ends before.
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> destination) const;

 private:
  ImportedFile(std::string path, storage::UniqueFd fd, uint64_t bytes)
      : path_(std::move(path)), fd_(std::move(fd)), bytes_(bytes) {}

  std::string path_;
  storage::UniqueFd fd_;
  uint64_t bytes_ = 0;
};

// The status with the path before its message.
absl::Status InFile(const std::string& path, const absl::Status& status);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_IMPORTED_FILE_H_
