// Names that a process relies on. Each must still lead to the file or directory that it led to at first.

#ifndef TIDEMARK_STORAGE_IO_HELD_NAMES_H_
#define TIDEMARK_STORAGE_IO_HELD_NAMES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Thread-compatible; Check is const.
class HeldNames {
 public:
  // `files`: not owned, and used as long as this lives. `what`: the owner of the names, for messages.
  HeldNames(FileSystem& files, std::string what) : files_(files), what_(std::move(what)) {}

  // Errors: as for Check, and kNotFound.
  absl::Status Add(const std::string& path);

  // kFailedPrecondition, "`what` was moved or replaced": the message names the first path that now leads to another
  // file, or nowhere. Other errors: those of FileSystem::Identify.
  absl::Status Check() const;

 private:
  absl::Status Moved(const std::string& how) const;

  FileSystem& files_;
  const std::string what_;
  std::vector<std::pair<std::string, FileId>> names_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_HELD_NAMES_H_
