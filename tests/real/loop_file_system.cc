#include "tests/real/loop_file_system.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/io/errno_status.h"
#include "tests/storage/io/child_process.h"

namespace tidemark {
namespace {

using storage::ErrnoStatus;
using storage::UniqueFd;

// EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN are the same, and so are their flags; neither is in a header that every
// Debian has.
constexpr unsigned long kShutdown = _IOR('X', 125, __u32);
constexpr __u32 kWithoutFlushingTheJournal = 2;

constexpr uint64_t kBlockBytes = 4096;

absl::Status NotHere(const std::string& why) { return absl::UnimplementedError(why); }

// Whether a mount failed since there are no such file systems or no loop devices for this process, or none that is
// free. Whatever else fails is a fault, of the test or of what it tests.
bool LacksMeans(const absl::Status& status) {
  const std::string message(status.message());
  for (const char* error : {"(EPERM)", "(EACCES)", "(ENODEV)", "(ENXIO)"}) {
    if (message.find(error) != std::string::npos) return true;
  }
  const bool no_device = message.starts_with("open /dev/loop") && message.find("(ENOENT)") != std::string::npos;
  return no_device || absl::IsUnavailable(status);
}

// Runs a program of /sbin, whose output goes to `log`.
absl::Status RunProgram(std::vector<std::string> arguments, const std::string& log) {
  const std::string path = fmt::format("/usr/sbin/{}", arguments[0]);
  if (access(path.c_str(), X_OK) != 0) return NotHere(fmt::format("{} is not installed", path));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t process = -1;
  const int error = posix_spawn(&process, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, "start", path);
  int how = -1;
  while (waitpid(process, &how, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return absl::OkStatus();
  std::ifstream output(log);
  const std::string said((std::istreambuf_iterator<char>(output)), {});
  return absl::InternalError(fmt::format("{} ended with wait status {}: {}", path, how, said));
}

}  // namespace

LoopFileSystem::LoopFileSystem(const Options& options)
    : options_(options),
      image_(options.directory + "/image"),
      mount_point_(options.directory + "/disk"),
      ballast_(mount_point_ + "/ballast") {}

LoopFileSystem::~LoopFileSystem() {
  Unmount().IgnoreError();  // then the end of the process does it
  if (in_memory_) umount2(options_.directory.c_str(), MNT_DETACH);
}

absl::StatusOr<std::unique_ptr<LoopFileSystem>> LoopFileSystem::Make(const Options& options) {
  if (geteuid() != 0) return NotHere("mounting a file system of one's own takes root");
  if (access("/dev/loop-control", R_OK | W_OK) != 0) return NotHere("there is no /dev/loop-control");
  std::unique_ptr<LoopFileSystem> made(new LoopFileSystem(options));
  if (absl::Status status = made->EnterMemory(); !status.ok()) return status;
  if (absl::Status status = made->WriteEmpty(); !status.ok()) return status;
  // Only trying tells: the type may be a module that is loaded on demand, and loop devices may be denied.
  if (absl::Status status = made->Mount(); !status.ok()) {
    return LacksMeans(status) ? NotHere(std::string(status.message())) : status;
  }
  if (absl::Status status = made->Unmount(); !status.ok()) return status;
  return made;
}

absl::Status LoopFileSystem::EnterMemory() {
  // Once: threads that the process keeps, like RocksDB's, stay in the one in which they were started.
  static const bool entered = storage::EnterMountNamespace();
  if (!entered) return NotHere("a mount namespace is not allowed here");
  const std::string size = fmt::format("size={},mode=700", options_.bytes + (16 << 20));
  if (mount("tidemark", options_.directory.c_str(), "tmpfs", 0, size.c_str()) != 0) {
    const absl::Status status = ErrnoStatus(errno, "mount a tmpfs at", options_.directory);
    return LacksMeans(status) ? NotHere(std::string(status.message())) : status;
  }
  in_memory_ = true;
  if (mkdir(mount_point_.c_str(), 0700) != 0) return ErrnoStatus(errno, "create directory", mount_point_);
  return absl::OkStatus();
}

absl::Status LoopFileSystem::WriteEmpty() {
  const UniqueFd image(open(image_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!image.valid()) return ErrnoStatus(errno, "create", image_);
  if (ftruncate(image.get(), static_cast<off_t>(options_.bytes)) != 0) return ErrnoStatus(errno, "truncate", image_);
  std::vector<std::string> command = {"mkfs." + options_.type, "-q"};
  if (options_.type == "ext4") {
    // Blocks of 4 KiB whatever the size, none of them root's own, and none that the kernel writes at its leisure.
    command.insert(command.end(), {"-F", "-b", "4096", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"});
  }
  command.push_back(image_);
  return RunProgram(std::move(command), options_.directory + "/mkfs.log");
}

absl::StatusOr<UniqueFd> LoopFileSystem::AttachLoop(std::string* device) const {
  const UniqueFd image(open(image_.c_str(), O_RDWR | O_CLOEXEC));
  if (!image.valid()) return ErrnoStatus(errno, "open", image_);
  const UniqueFd control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control.valid()) return ErrnoStatus(errno, "open", "/dev/loop-control");
  constexpr int kTries = 100;  // others look for a free one at the same time
  for (int i = 0; i < kTries; ++i) {
    const int number = ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return ErrnoStatus(errno, "find a free loop device", "/dev/loop-control");
    *device = fmt::format("/dev/loop{}", number);
    UniqueFd loop(open(device->c_str(), O_RDWR | O_CLOEXEC));
    if (!loop.valid()) return ErrnoStatus(errno, "open", *device);
    loop_config config = {};
    config.fd = static_cast<__u32>(image.get());
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (ioctl(loop.get(), LOOP_CONFIGURE, &config) == 0) return loop;
    if (errno != EBUSY) return ErrnoStatus(errno, "configure", *device);
  }
  return absl::UnavailableError("every free loop device was taken by somebody else");
}

absl::Status LoopFileSystem::Mount(const std::string& options) {
  std::string device;
  absl::StatusOr<UniqueFd> loop = AttachLoop(&device);
  if (!loop.ok()) return loop.status();
  if (mount(device.c_str(), mount_point_.c_str(), options_.type.c_str(), 0, options.c_str()) != 0) {
    return ErrnoStatus(errno, fmt::format("mount {} ({}) at", device, options_.type), mount_point_);
  }
  mounted_ = true;
  root_ = UniqueFd(open(mount_point_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root_.valid()) return ErrnoStatus(errno, "open", mount_point_);
  return absl::OkStatus();
}

absl::Status LoopFileSystem::Unmount() {
  if (!mounted_) return absl::OkStatus();
  root_ = UniqueFd();
  // A ring's descriptor is closed at once, and what it held by the kernel's own threads; nothing tells when they are
  // done.
  constexpr auto kWaitMax = std::chrono::seconds(60);
  const auto begin = std::chrono::steady_clock::now();
  while (umount2(mount_point_.c_str(), 0) != 0) {
    if (errno != EBUSY || std::chrono::steady_clock::now() - begin > kWaitMax) {
      return ErrnoStatus(errno, "unmount", mount_point_);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  mounted_ = false;
  return absl::OkStatus();
}

absl::Status LoopFileSystem::CutPower() {
  __u32 flags = kWithoutFlushingTheJournal;
  if (ioctl(root_.get(), kShutdown, &flags) == 0) return absl::OkStatus();
  // Of one that is down already, some kernels say so.
  return errno == EIO ? absl::OkStatus() : ErrnoStatus(errno, "shut down", mount_point_);
}

absl::Status LoopFileSystem::FillUpTo(uint64_t left) {
  const UniqueFd ballast(open(ballast_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!ballast.valid()) return ErrnoStatus(errno, "create", ballast_);
  constexpr int kTries = 100;  // what records the file's own blocks takes some, too
  for (int i = 0; i < kTries; ++i) {
    if (syncfs(ballast.get()) != 0) return ErrnoStatus(errno, "syncfs", mount_point_);
    absl::StatusOr<uint64_t> free = FreeBytes();
    if (!free.ok() || *free == left) return free.status();
    struct stat info = {};
    if (fstat(ballast.get(), &info) != 0) return ErrnoStatus(errno, "stat", ballast_);
    if (*free < left) {
      const off_t size = info.st_size - static_cast<off_t>(left - *free);
      if (size < 0) return absl::ResourceExhaustedError(fmt::format("only {} bytes are free", *free));
      if (ftruncate(ballast.get(), size) != 0) return ErrnoStatus(errno, "truncate", ballast_);
      continue;
    }
    // By half where there is not as much in one go.
    for (uint64_t bytes = *free - left; bytes >= kBlockBytes; bytes = bytes / 2 / kBlockBytes * kBlockBytes) {
      if (fallocate(ballast.get(), 0, info.st_size, static_cast<off_t>(bytes)) == 0) break;
      if (errno != ENOSPC) return ErrnoStatus(errno, "fallocate", ballast_);
    }
  }
  return absl::InternalError(fmt::format("{} bytes cannot be left on {}", left, mount_point_));
}

absl::Status LoopFileSystem::Empty() {
  if (unlink(ballast_.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove", ballast_);
  return syncfs(root_.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "syncfs", mount_point_);
}

absl::StatusOr<uint64_t> LoopFileSystem::FreeBytes() const {
  struct statvfs info = {};
  if (statvfs(mount_point_.c_str(), &info) != 0) return ErrnoStatus(errno, "statvfs", mount_point_);
  return uint64_t{info.f_bavail} * info.f_frsize;
}

}  // namespace tidemark
