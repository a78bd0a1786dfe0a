// What a machine, and a directory on it, can do for a store: tried out, not looked up, wherever trying is possible.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PLACE_FACTS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PLACE_FACTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"

namespace tidemark::inspect {

struct MachineFacts {
  absl::Status uring;                         // or why the kernel gives no io_uring
  std::optional<int> uring_disabled;          // kernel.io_uring_disabled; nullopt: the kernel has no such setting
  absl::Status registered_memory;             // or why io_uring does not keep memory; ok where there is no io_uring
  std::optional<uint64_t> locked_memory_max;  // bytes that the process may lock; nullopt: no limit
  std::optional<uint64_t> open_files_max;     // nullopt: no limit
  uint64_t memory_bytes = 0;
  std::string huge_pages;  // "always", "madvise" or "never"; empty: the kernel has none
  std::string vectors;     // what the codec uses: "avx512", "avx2" or "portable"
  unsigned cores = 0;      // that this process may run on
};

MachineFacts LookAtMachine(storage::FileSystem& files);

struct PlaceFacts {
  // Where the trials took place: the directory that was asked for, or the nearest one above it that is there. Without
  // links. Empty: there is none, or something else stands in its way, and `found` says what.
  std::string directory;
  bool is_there = false;  // the directory that was asked for is
  absl::Status found;

  std::string file_system;              // "ext4 on /dev/vda1", or "unknown"
  uint64_t file_system_magic = 0;       // statfs(2)'s f_type
  uint64_t free_bytes = 0;              // for this user
  std::optional<uint64_t> free_inodes;  // nullopt: they are not counted

  // Each ok, or what the first call that failed said.
  absl::Status writable;  // a directory and a file in it can be made and written
  // The rest means nothing unless that is so.
  absl::Status durable_names;   // a rename replaces, and directories can be synced
  absl::Status new_names;       // a name that exists is not taken, so of several appends to the journal one gets it
  absl::Status hard_links;      // a file can have several names
  absl::Status locks;           // a file can be locked, and that keeps another out
  absl::Status allocate;        // blocks can be allocated ahead
  bool direct = false;          // there is O_DIRECT
  bool nameless_files = false;  // there is O_TMPFILE
};

// A folder of its own, with a name that begins with a dot, takes the trials and is removed.
PlaceFacts LookAtPlace(storage::FileSystem& files, const std::string& directory);

// A file in `directory` that is gone when it is closed, whatever ends the process, where the file system has O_TMPFILE;
// elsewhere it has a name that begins with a dot until the destructor removes it. Thread-compatible.
class TrialFile {
 public:
  // Direct, if the file system can. An error as open(2) has it.
  static absl::StatusOr<std::unique_ptr<TrialFile>> Create(storage::FileSystem& files, const std::string& directory);
  ~TrialFile();
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;

  storage::File& file() { return *file_; }
  bool nameless() const { return path_.empty(); }

 private:
  explicit TrialFile(storage::FileSystem& files) : files_(files) {}

  storage::FileSystem& files_;
  std::string path_;  // empty: it has none
  std::unique_ptr<storage::File> file_;
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_PLACE_FACTS_H_
