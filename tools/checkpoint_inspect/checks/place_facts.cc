#include "tools/checkpoint_inspect/checks/place_facts.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/codec/codec_backend.h"
#include "storage/io/errno_status.h"
#include "storage/io/link_free_path.h"
#include "storage/io/machine.h"
#include "storage/io/posix_file.h"
#include "storage/io/unique_fd.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/write/shard_writer.h"

namespace tidemark::inspect {
namespace {

using storage::ErrnoStatus;
using storage::File;
using storage::FileSystem;

constexpr const char* kUringSetting = "/proc/sys/kernel/io_uring_disabled";  // since Linux 6.6
constexpr const char* kHugePagesSetting = "/sys/kernel/mm/transparent_hugepage/enabled";
constexpr const char* kTrialName = ".tidemark-doctor-";
constexpr size_t kTrialBytes = 64 << 10;

// Of the kernel's files, which have no size.
std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<uint64_t> SoftLimit(__rlimit_resource resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// The limit does not hold for who has the right to lock any memory.
bool MayLockAnything() {
  const std::string rights = storage::ValueOf(Contents("/proc/self/status"), "CapEff");
  return ((std::strtoull(rights.c_str(), nullptr, 16) >> CAP_IPC_LOCK) & 1) != 0;
}

unsigned CoresOfProcess(unsigned cores_of_machine) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores_of_machine;
  return static_cast<unsigned>(CPU_COUNT(&set));
}

// "always [madvise] never": the one in brackets.
std::string ChosenOf(const std::string& choices) {
  const size_t begin = choices.find('[');
  const size_t end = choices.find(']');
  return begin == std::string::npos || end == std::string::npos ? "" : choices.substr(begin + 1, end - begin - 1);
}

void TryUring(FileSystem& files, MachineFacts& facts) {
  absl::StatusOr<std::unique_ptr<storage::IoQueue>> queue =
      files.NewIoQueue(storage::IoQueueKind::kUring, storage::ShardWriterOptions().io_depth);
  facts.uring = queue.status();
  if (queue.ok()) {
    const storage::AlignedBuffer blocks(storage::ShardWriterOptions().io_depth << 20);
    facts.registered_memory = (*queue)->RegisterMemory(blocks.span());
    (*queue)->UnregisterMemory(blocks.span());
  }
  const std::string setting = Contents(kUringSetting);
  if (!setting.empty()) facts.uring_disabled = std::atoi(setting.c_str());
}

// A folder for the trials, and what is in it. Removed at the end.
class TrialFolder {
 public:
  TrialFolder(FileSystem& files, const std::string& directory)
      : files_(files), path_(fmt::format("{}/{}{}", directory, kTrialName, storage::ToHex(storage::RandomBytes16()))) {
    status_ = files_.CreateDirectory(path_);
  }
  ~TrialFolder() {
    if (status_.ok()) storage::RemoveTree(files_, path_).IgnoreError();
  }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;

  const absl::Status& status() const { return status_; }
  std::string Path(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

  absl::Status Write(std::string_view name) const {
    absl::StatusOr<std::unique_ptr<File>> file = files_.Create(Path(name), /*direct=*/false);
    if (!file.ok()) return file.status();
    absl::Status status = (*file)->WriteAt(0, std::as_bytes(std::span(name.data(), name.size())));
    if (status.ok()) status = (*file)->SyncData();
    return status.ok() ? (*file)->Close() : status;
  }

  // As each commit does, and each rewrite of a small file.
  absl::Status Rename(std::string_view from, std::string_view to) const {
    absl::Status status = files_.Rename(Path(from), Path(to));
    return status.ok() ? files_.SyncDirectory(path_) : status;
  }

  // As each entry of the journal gets its name. `to` is not there yet.
  absl::Status RenameToNew(std::string_view from, std::string_view to) const {
    absl::Status status = files_.RenameToNew(Path(from), Path(to));
    if (status.ok()) status = Write(from);
    if (!status.ok()) return status;
    const absl::Status second = files_.RenameToNew(Path(from), Path(to));
    if (second.ok()) return absl::InternalError(fmt::format("rename {}: it took a name that exists", Path(from)));
    return absl::IsAlreadyExists(second) ? absl::OkStatus() : second;
  }

  absl::Status HardLink(std::string_view name, std::string_view new_name) const {
    return files_.HardLink(Path(name), Path(new_name));
  }

  absl::Status Lock() const {
    const absl::StatusOr<std::unique_ptr<storage::FileLock>> lock = files_.TryLock(Path("LOCK"));
    if (!lock.ok()) return lock.status();
    const absl::Status second = files_.TryLock(Path("LOCK")).status();
    if (second.ok()) {
      return absl::InternalError(fmt::format("lock {}: two opens got the lock", Path("LOCK")));
    }
    return absl::IsUnavailable(second) ? absl::OkStatus() : second;
  }

 private:
  FileSystem& files_;
  const std::string path_;
  absl::Status status_;
};

// The nearest directory that is there.
void FindDirectory(const std::string& asked, PlaceFacts& facts) {
  std::string path = storage::FollowLinks(asked);
  for (facts.is_there = true;; facts.is_there = false) {
    struct stat info = {};
    if (stat(path.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) {
        facts.directory = path;
      } else {
        facts.is_there = false;
        facts.found = absl::FailedPreconditionError(fmt::format("{} is not a directory", path));
      }
      return;
    }
    if (errno != ENOENT && errno != ENOTDIR) {
      facts.is_there = false;
      facts.found = ErrnoStatus(errno, "look at", path);
      return;
    }
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    std::string parent = std::filesystem::path(path).parent_path().string();
    path = parent.empty() ? "." : std::move(parent);
  }
}

void LookAtFileSystem(PlaceFacts& facts) {
  facts.file_system = storage::DescribeMachine(facts.directory).file_system;
  struct statfs info = {};
  if (statfs(facts.directory.c_str(), &info) == 0) facts.file_system_magic = static_cast<uint64_t>(info.f_type);
  struct statvfs space = {};
  if (statvfs(facts.directory.c_str(), &space) != 0) return;
  facts.free_bytes = uint64_t{space.f_bavail} * space.f_frsize;
  if (space.f_files > 0) facts.free_inodes = space.f_favail;
}

}  // namespace

MachineFacts LookAtMachine(FileSystem& files) {
  const storage::Machine machine = storage::DescribeMachine("/");
  MachineFacts facts{.locked_memory_max = SoftLimit(RLIMIT_MEMLOCK),
                     .open_files_max = SoftLimit(RLIMIT_NOFILE),
                     .memory_bytes = machine.memory_bytes,
                     .huge_pages = ChosenOf(Contents(kHugePagesSetting)),
                     .vectors = std::string(storage::BestCodecBackend().name),
                     .cores = CoresOfProcess(machine.cores)};
  if (MayLockAnything()) facts.locked_memory_max = std::nullopt;
  TryUring(files, facts);
  return facts;
}

PlaceFacts LookAtPlace(FileSystem& files, const std::string& directory) {
  PlaceFacts facts;
  FindDirectory(directory, facts);
  if (!facts.found.ok()) return facts;
  LookAtFileSystem(facts);

  const TrialFolder folder(files, facts.directory);
  facts.writable = folder.status();
  if (facts.writable.ok()) facts.writable = folder.Write("first");
  if (!facts.writable.ok()) return facts;
  facts.durable_names = folder.Write("second");
  if (facts.durable_names.ok()) facts.durable_names = folder.Rename("second", "first");
  facts.new_names = folder.Write("third");
  if (facts.new_names.ok()) facts.new_names = folder.RenameToNew("third", "taken");
  facts.hard_links = folder.Write("file");
  if (facts.hard_links.ok()) facts.hard_links = folder.HardLink("file", "link");
  facts.locks = folder.Lock();

  const absl::StatusOr<std::unique_ptr<TrialFile>> file = TrialFile::Create(files, facts.directory);
  facts.writable = file.status();
  if (!file.ok()) return facts;
  facts.direct = (*file)->file().direct();
  facts.nameless_files = (*file)->nameless();
  facts.allocate = (*file)->file().Allocate(kTrialBytes);
  return facts;
}

absl::StatusOr<std::unique_ptr<TrialFile>> TrialFile::Create(FileSystem& files, const std::string& directory) {
  std::unique_ptr<TrialFile> trial(new TrialFile(files));
  storage::UniqueFd fd(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const bool nameless = fd.valid();
  const std::string path = fmt::format("{}/{}{}", directory, kTrialName, storage::ToHex(storage::RandomBytes16()));
  // Whatever the reason is, a file with a name meets it too, or does without.
  absl::StatusOr<std::unique_ptr<File>> file =
      nameless ? storage::PosixFile::Adopt(storage::UnsharedFd(std::move(fd)), path, /*direct=*/true)
               : files.Create(path, /*direct=*/true);
  if (!file.ok()) return file.status();
  trial->path_ = nameless ? "" : path;
  trial->file_ = *std::move(file);
  return trial;
}

TrialFile::~TrialFile() {
  file_.reset();
  if (!path_.empty()) files_.RemoveFile(path_).IgnoreError();
}

}  // namespace tidemark::inspect
