// A file system of the kernel's own, on an image file behind a loop device, that a test can take the power from.

#ifndef TIDEMARK_TESTS_REAL_LOOP_FILE_SYSTEM_H_
#define TIDEMARK_TESTS_REAL_LOOP_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/unique_fd.h"

namespace tidemark {

// Image and mounts lie in a mount namespace of the process's own: nobody else sees them, and the kernel takes mounts,
// loop device and image back when the process ends, however that happens. It is that of the thread that first calls
// Make and of those that are started from then on, so others must have no business there. Image and mount point are in
// memory (tmpfs), so that a sync takes as long as the kernel's work and no longer. Thread-compatible, but for CutPower.
class LoopFileSystem {
 public:
  // Named as mount(8) and mkfs name it: "ext4", "xfs".
  struct Options {
    std::string type;
    uint64_t bytes = 0;
    std::string directory;  // a folder of the caller's own: it is where the memory's file system is mounted
  };

  // Makes the file system and does not mount it. kUnimplemented: there is none to be had here, and why: no root, no
  // loop devices, no mkfs, or the kernel does not know the type.
  static absl::StatusOr<std::unique_ptr<LoopFileSystem>> Make(const Options& options);
  ~LoopFileSystem();

  // `options`: of the file system's own, as mount(8) takes them.
  absl::Status Mount(const std::string& options = "");

  // Every file must be closed; what the kernel closes behind an io_uring is waited for.
  absl::Status Unmount();

  // From here on the file system answers with EIO, and nothing that it has not written to its device gets there: its
  // journal neither, unless that was synced. Mount it anew to see what is left. Thread-safe while it is mounted; the
  // second cut does nothing.
  absl::Status CutPower();

  // Takes blocks with a file of its own until so many bytes, a multiple of 4096, are left, exactly; or gives some back.
  // Blocks that were freed, and those that are to be allocated when they are written back, are settled first.
  absl::Status FillUpTo(uint64_t left);

  // Gives back all that FillUpTo has taken.
  absl::Status Empty();

  // Bytes that can be allocated.
  absl::StatusOr<uint64_t> FreeBytes() const;

  const std::string& mount_point() const { return mount_point_; }

 private:
  explicit LoopFileSystem(const Options& options);
  absl::Status EnterMemory();
  absl::Status WriteEmpty();
  // The device lasts as long as the descriptor, and then as long as it is mounted.
  absl::StatusOr<storage::UniqueFd> AttachLoop(std::string* device) const;

  const Options options_;
  const std::string image_;
  const std::string mount_point_;
  const std::string ballast_;
  storage::UniqueFd root_;  // of the mounted file system, for the ioctl
  bool in_memory_ = false;
  bool mounted_ = false;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_REAL_LOOP_FILE_SYSTEM_H_
