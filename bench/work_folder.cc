#include "bench/work_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "bench/process.h"
#include "fmt/format.h"
#include "storage/io/unique_fd.h"

namespace tidemark::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDropCachesPath = "/proc/sys/vm/drop_caches";

// Other threads may be adding files until the folder itself is gone; after that they cannot.
void RemoveUntilGone(const std::string& path) {
  constexpr int kTriesMax = 100;
  std::error_code error;
  for (int i = 0; i < kTriesMax && fs::exists(path, error); ++i) fs::remove_all(path, error);
}

// Of all folders that have not been removed. Never destroyed: the thread that waits for signals outlives main.
struct Registry {
  absl::Mutex mutex;
  std::set<std::string> paths ABSL_GUARDED_BY(mutex);
};

Registry& TheRegistry() {
  static auto* registry = new Registry();
  return *registry;
}

absl::Status DropFile(const std::string& path) {
  const storage::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, "open " + path);
  if (fdatasync(file.get()) != 0) return absl::ErrnoToStatus(errno, "fdatasync " + path);
  if (const int error = posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED); error != 0) {
    return absl::ErrnoToStatus(error, "posix_fadvise " + path);
  }
  return absl::OkStatus();
}

}  // namespace

WorkFolder::WorkFolder(std::string path) : path_(std::move(path)) {
  const absl::MutexLock lock(&TheRegistry().mutex);
  TheRegistry().paths.insert(path_);
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}

WorkFolder::~WorkFolder() {
  if (path_.empty()) return;
  RemoveUntilGone(path_);
  const absl::MutexLock lock(&TheRegistry().mutex);
  TheRegistry().paths.erase(path_);
}

absl::StatusOr<WorkFolder> WorkFolder::Create(const std::string& parent) {
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) return absl::ErrnoToStatus(error.value(), "create directory " + parent);
  const fs::path absolute = fs::canonical(parent, error);
  if (error) return absl::ErrnoToStatus(error.value(), "find directory " + parent);
  std::string path = (absolute / "tidemark-bench-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) return absl::ErrnoToStatus(errno, "create directory " + path);
  return WorkFolder(std::move(path));
}

void WorkFolder::RemoveAllOnSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) return;
    KillRunningProcess();
    const absl::MutexLock lock(&TheRegistry().mutex);  // to the end: no folder is made any more
    for (const std::string& path : TheRegistry().paths) {
      RemoveUntilGone(path);
      fmt::print(stderr, "\ntidemark-bench: ended by signal {}; {} is removed\n", signal, path);
    }
    _exit(128 + signal);
  }).detach();
}

absl::Status DropCaches(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, error)) {
    if (!entry.is_regular_file()) continue;
    if (absl::Status status = DropFile(entry.path().string()); !status.ok()) return status;
  }
  if (error) return absl::ErrnoToStatus(error.value(), "list " + folder);
  if (!MayDropPageCache()) return absl::OkStatus();
  const storage::UniqueFd control(open(kDropCachesPath, O_WRONLY | O_CLOEXEC));
  if (control.get() < 0 || write(control.get(), "3", 1) != 1) return absl::ErrnoToStatus(errno, kDropCachesPath);
  return absl::OkStatus();
}

bool MayDropPageCache() { return access(kDropCachesPath, W_OK) == 0; }

absl::Status SyncFileSystem(const std::string& path) {
  const storage::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return absl::ErrnoToStatus(errno, "open " + path);
  if (syncfs(file.get()) != 0) return absl::ErrnoToStatus(errno, "syncfs " + path);
  return absl::OkStatus();
}

}  // namespace tidemark::bench
