// OutputFile: a file that is there as a whole or not at all.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_OUTPUT_FILE_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_OUTPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/unique_fd.h"

namespace tidemark {

// Thread-compatible. Has no name until Commit, so that a killed process leaves nothing. Some file systems have no files
// without names. There it has a temporary name, and the destructor removes it: ".NAME." and 32 hexadecimal digits.
// During Commit such a name exists for a moment on all file systems, if a file is replaced. The next Create of the same
// path removes what a killed process has left.
class OutputFile {
 public:
  // kAlreadyExists: `path` is there, and not to be replaced. kNotFound: its directory is not. Any other error: it
  // cannot be made there. Only regular files are ever replaced.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path, bool replace);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }

  // Appends. After an error nothing more is to be written.
  absl::Status Write(std::span<const std::byte> bytes);
  absl::Status Write(std::string_view text);

  // At a place before the end of what has been written.
  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);

  // Syncs the file, gives it its name, and syncs the name. kAlreadyExists: there is something of that name by now, and
  // it is not to be replaced. If only the last of these fails, the file has its name. Nothing may be written
  // afterwards.
  absl::Status Commit();

 private:
  OutputFile(std::string path, bool replace) : path_(std::move(path)), replace_(replace) {}
  absl::Status Open();

  const std::string path_;
  const bool replace_;
  storage::UniqueFd fd_;
  std::string temporary_;  // the name that it has until then; empty: none
  uint64_t end_ = 0;
};

// Gives `from`, a file or a folder, the name `to`, where nothing of that name may be; kAlreadyExists: something is.
// `kernel_looks`: the kernel is asked to do both in one, which not every file system can. Else, or where it cannot, a
// file still never takes the place of another, and a folder only that of an empty one that comes at the same moment.
absl::Status NameAnew(const std::string& from, const std::string& to, bool kernel_looks = true);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_OUTPUT_FILE_H_
