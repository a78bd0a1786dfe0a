// The folders that the bench works in, which go when the bench does, however that ends.

#ifndef TIDEMARK_BENCH_WORK_FOLDER_H_
#define TIDEMARK_BENCH_WORK_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidemark::bench {

// Removes the folder and all that is in it when destroyed. Movable, immutable.
class WorkFolder {
 public:
  // Makes `parent`/tidemark-bench-XXXXXX, and `parent` if there is none.
  static absl::StatusOr<WorkFolder> Create(const std::string& parent);
  ~WorkFolder();
  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&&) = delete;

  const std::string& path() const { return path_; }

  // From here on SIGINT, SIGTERM and SIGHUP remove every folder there is then and end the process, with 128 + the
  // signal. To be called once, before there are other threads: they inherit that the signals are blocked.
  static void RemoveAllOnSignal();

 private:
  explicit WorkFolder(std::string path);
  std::string path_;  // empty: moved from
};

// Makes the kernel forget what it has in memory of the files below `folder`: a following read comes from the disk. They
// are synced first, since only clean pages go. Where this process may, all of the page cache goes too.
absl::Status DropCaches(const std::string& folder);

// Whether DropCaches may empty the whole page cache.
bool MayDropPageCache();

// Writes out all that is waiting in the file system of `path`, the effects of removed files among it, so that what is
// measured next does not pay for what came before.
absl::Status SyncFileSystem(const std::string& path);

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_WORK_FOLDER_H_
