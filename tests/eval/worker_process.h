// A follow_process that a test runs, listens to and kills.

#ifndef TIDEMARK_TESTS_EVAL_WORKER_PROCESS_H_
#define TIDEMARK_TESTS_EVAL_WORKER_PROCESS_H_

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace tidemark {

class WorkerProcess {
 public:
  explicit WorkerProcess(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    arguments.insert(arguments.begin(), FOLLOW_PROCESS);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (posix_spawn(&process_, FOLLOW_PROCESS, &actions, nullptr, argv.data(), environ) != 0) std::abort();
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    told_ = ends[0];
  }
  ~WorkerProcess() {
    if (process_ > 0) End(SIGKILL);
    close(told_);
  }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // What it does next; nothing after so many milliseconds without, or when it has ended.
  std::optional<char> Next(int timeout_ms) {
    pollfd event{.fd = told_, .events = POLLIN, .revents = 0};
    char what = 0;
    if (poll(&event, 1, timeout_ms) != 1 || read(told_, &what, 1) != 1) return std::nullopt;
    last_ = what;
    return what;
  }

  // What it did last, as far as it was listened to.
  char last() const { return last_; }

  // Sends the signal, if it is not 0, and waits for the end; what waitpid says of it.
  int End(int signal) {
    if (signal != 0) kill(process_, signal);
    int how = -1;
    waitpid(process_, &how, 0);
    process_ = -1;
    return how;
  }

 private:
  pid_t process_ = -1;
  int told_ = -1;
  char last_ = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_EVAL_WORKER_PROCESS_H_
