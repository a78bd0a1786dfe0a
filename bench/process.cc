#include "bench/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/io/unique_fd.h"

extern char** environ;

namespace tidemark::bench {
namespace {

std::atomic<pid_t> running_process{0};

struct Pipe {
  storage::UniqueFd read;
  storage::UniqueFd write;
};

absl::StatusOr<Pipe> OpenPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  return Pipe{.read = storage::UniqueFd(ends[0]), .write = storage::UniqueFd(ends[1])};
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& arguments, int out, int err) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);

  pid_t process = 0;
  const int error = posix_spawnp(&process, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return absl::NotFoundError(fmt::format("{} cannot be started: {}", arguments[0], std::strerror(error)));
  }
  return process;
}

// Until both ends have been closed at the other side.
void ReadBoth(int out, int err, ProcessOutput& output) {
  std::array<pollfd, 2> ends = {{{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}}};
  const std::array<std::string*, 2> texts = {&output.out, &output.err};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) return;
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t count = read(ends[i].fd, buffer.data(), buffer.size());
      if (count > 0) {
        texts[i]->append(buffer.data(), static_cast<size_t>(count));
      } else if (count == 0 || errno != EINTR) {
        ends[i].fd = -1;
      }
    }
  }
}

}  // namespace

absl::StatusOr<ProcessOutput> RunProcess(const std::vector<std::string>& arguments) {
  absl::StatusOr<Pipe> out = OpenPipe();
  if (!out.ok()) return out.status();
  absl::StatusOr<Pipe> err = OpenPipe();
  if (!err.ok()) return err.status();
  absl::StatusOr<pid_t> process = Spawn(arguments, out->write.get(), err->write.get());
  if (!process.ok()) return process.status();
  running_process = *process;
  out->write = storage::UniqueFd();
  err->write = storage::UniqueFd();

  ProcessOutput output;
  ReadBoth(out->read.get(), err->read.get(), output);
  int status = 0;
  while (waitpid(*process, &status, 0) < 0 && errno == EINTR) {
  }
  running_process = 0;
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

void KillRunningProcess() {
  if (const pid_t process = running_process; process > 0) kill(process, SIGKILL);
}

}  // namespace tidemark::bench
