#include "tools/checkpoint_inspect/checks/disk_usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "storage/io/unique_fd.h"

namespace tidemark::inspect {
namespace {

using storage::UniqueFd;

// A store has three; a directory that goes on for longer is not the store's, and is not looked into to its end.
constexpr int kDepthMax = 16;

// The unit of st_blocks, stat(2).
constexpr uint64_t kBlockBytes = 512;

// Calls `visit` with the name and the attributes of everything in the directory. False: it cannot be listed.
bool ForEachIn(int directory, const std::function<void(const std::string&, const struct stat&)>& visit) {
  // A descriptor of its own, for closedir closes it.
  const int listed = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const stream = listed < 0 ? nullptr : fdopendir(listed);
  if (stream == nullptr) return false;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    struct stat info;
    if (name == "." || name == "..") continue;
    // What is gone by now takes nothing.
    if (fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) visit(name, info);
  }
  const bool complete = errno == 0;
  closedir(stream);
  return complete;
}

class Walk {
 public:
  // Of `name` in `parent` and everything beneath.
  uint64_t BytesOf(int parent, const std::string& name, const struct stat& info, int depth = 1) {
    uint64_t bytes = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
    if (!S_ISDIR(info.st_mode)) {
      // A segment of the journal has thousands of names.
      const bool is_counted = info.st_nlink > 1 && !linked_.emplace(info.st_dev, info.st_ino).second;
      return is_counted ? 0 : bytes;
    }
    const UniqueFd directory(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!directory.valid() && errno == ENOENT) return bytes;
    const bool listed = directory.valid() && depth < kDepthMax &&
                        ForEachIn(directory.get(), [&](const std::string& inner, const struct stat& inner_info) {
                          bytes += BytesOf(directory.get(), inner, inner_info, depth + 1);
                        });
    if (!listed) ++unread_;
    return bytes;
  }

  size_t unread() const { return unread_; }

 private:
  size_t unread_ = 0;
  std::set<std::pair<dev_t, ino_t>> linked_;  // files of several names that have been counted
};

void AddSteps(int store, const struct stat& info, const std::set<std::string>& step_folders, Walk& walk,
              DiskUsage& usage) {
  usage.steps += static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
  const UniqueFd steps(openat(store, "steps", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const bool listed = steps.valid() && ForEachIn(steps.get(), [&](const std::string& name, const struct stat& folder) {
                        const uint64_t bytes = walk.BytesOf(steps.get(), name, folder);
                        (step_folders.contains(name) ? usage.steps : usage.other_attempts) += bytes;
                      });
  if (!listed) ++usage.unread;
}

uint64_t& PlaceOf(std::string_view name, DiskUsage& usage) {
  if (name == "quarantine") return usage.quarantine;
  if (name == "journal") return usage.journal;
  if (name == "index") return usage.index;
  if (name.starts_with("journal.broken-") || name.starts_with("manifest.broken-")) return usage.broken_journals;
  if (name == "retired.tmk") return usage.retired;
  return usage.other;
}

UniqueFd OpenFolder(const std::string& directory) {
  return UniqueFd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace

absl::StatusOr<DiskUsage> MeasureDisk(const std::string& directory, const std::set<std::string>& step_folders) {
  const UniqueFd store = OpenFolder(directory);
  struct stat own;
  if (!store.valid() || fstat(store.get(), &own) != 0) return storage::ErrnoStatus(errno, "look into", directory);
  Walk walk;
  DiskUsage usage;
  usage.other = static_cast<uint64_t>(own.st_blocks) * kBlockBytes;
  const bool listed = ForEachIn(store.get(), [&](const std::string& name, const struct stat& info) {
    if (name == "steps" && S_ISDIR(info.st_mode)) {
      AddSteps(store.get(), info, step_folders, walk, usage);
    } else {
      PlaceOf(name, usage) += walk.BytesOf(store.get(), name, info);
    }
  });
  usage.unread += walk.unread() + (listed ? 0 : 1);
  return usage;
}

std::optional<FileSystemRoom> MeasureRoom(const std::string& directory) {
  const UniqueFd store = OpenFolder(directory);
  struct statvfs info;
  if (!store.valid() || fstatvfs(store.get(), &info) != 0 || info.f_blocks == 0) return std::nullopt;
  const auto unit = static_cast<uint64_t>(info.f_frsize);
  return FileSystemRoom{.free_bytes = info.f_bavail * unit, .total_bytes = info.f_blocks * unit};
}

}  // namespace tidemark::inspect
