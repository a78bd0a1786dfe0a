#include "tests/tools/checkpoint_inspect/inspect_testing.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>

#include "gmock/gmock.h"
#include "storage/records/c_locale.h"

namespace tidemark::inspect {
namespace {

struct Streams {
  int out = -1;  // given to the process
  int err = -1;
  int master = -1;  // of the terminal, if they are one
};

Streams OpenStreams(const RunOptions& options) {
  Streams streams;
  if (options.terminal) {
    const winsize size = {.ws_row = 0, .ws_col = options.terminal_columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(openpty(&streams.master, &streams.out, nullptr, nullptr, &size), 0);
    fcntl(streams.master, F_SETFD, FD_CLOEXEC);
    streams.err = dup(streams.out);
    return streams;
  }
  streams.err = memfd_create("stderr", MFD_CLOEXEC);
  if (options.out_closed_pipe) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    streams.out = ends[1];
  } else if (!options.out_path.empty()) {
    streams.out = open(options.out_path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    streams.out = memfd_create("stdout", MFD_CLOEXEC);
  }
  return streams;
}

// Calls `on_text`, unless it is null, with all that has been read so far.
std::string ReadToEnd(int file, const std::function<void(const std::string&)>& on_text = nullptr) {
  std::string text;
  char buffer[4096];
  // A terminal whose last writer is gone gives an error instead of an end.
  for (ssize_t n; (n = read(file, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, n);
    if (on_text) on_text(text);
  }
  return text;
}

std::string ReadLine(int file) {
  std::string line;
  char c = 0;
  while (read(file, &c, 1) == 1 && c != '\n') line.push_back(c);
  return line;
}

[[noreturn]] void RunChild(const Streams& streams, const std::vector<std::string>& arguments,
                           const RunOptions& options) {
  // As a caller may that ignores it for itself.
  std::signal(SIGPIPE, SIG_IGN);
  if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) _exit(126);
  dup2(streams.out, STDOUT_FILENO);
  dup2(streams.err, STDERR_FILENO);
  std::vector<std::string> words = {CHECKPOINT_INSPECT};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::map<std::string, std::string> environment = options.environment;
  environment.emplace("TERM", "xterm");
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment) settings.push_back(name + "=" + value);
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (std::string& text : strings) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  for (const int stream : options.closed) close(stream);
  execve(CHECKPOINT_INSPECT, pointers(words).data(), pointers(settings).data());
  _exit(127);
}

}  // namespace

Finished RunInspect(const std::vector<std::string>& arguments, const RunOptions& options) {
  const Streams streams = OpenStreams(options);
  const pid_t child = fork();
  if (child == 0) RunChild(streams, arguments, options);
  Finished finished;
  if (options.terminal) {
    close(streams.out);
    close(streams.err);
    bool interrupted = options.interrupt_at.empty();
    finished.out = ReadToEnd(streams.master, [&](const std::string& text) {
      // Once only, for a second one kills.
      if (interrupted || text.find(options.interrupt_at) == std::string::npos) return;
      interrupted = true;
      kill(child, SIGINT);
    });
    close(streams.master);
  }
  int status = 0;
  rusage usage = {};
  EXPECT_EQ(wait4(child, &status, 0, &usage), child);
  finished.resident_kib_max = usage.ru_maxrss;
  if (WIFEXITED(status)) finished.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) finished.signal = WTERMSIG(status);
  if (!options.terminal) {
    lseek(streams.out, 0, SEEK_SET);
    lseek(streams.err, 0, SEEK_SET);
    finished.out = ReadToEnd(streams.out);
    finished.err = ReadToEnd(streams.err);
    close(streams.out);
    close(streams.err);
  }
  return finished;
}

RunningInspect::RunningInspect(const std::vector<std::string>& arguments, const std::vector<int>& closed) {
  int out[2];
  int err[2];
  EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
  child_ = fork();
  if (child_ == 0) RunChild({.out = out[1], .err = err[1]}, arguments, {.closed = closed});
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

RunningInspect::~RunningInspect() {
  if (child_ > 0) Finish(SIGKILL);
}

std::string RunningInspect::ReadOutLine() { return ReadLine(out_); }
std::string RunningInspect::ReadErrLine() { return ReadLine(err_); }

void RunningInspect::CloseOut() {
  close(out_);
  out_ = -1;
}

Finished RunningInspect::Finish(int signal) {
  if (signal != 0) {
    EXPECT_EQ(kill(child_, signal), 0);
  }
  Finished finished;
  if (out_ >= 0) finished.out = ReadToEnd(out_);
  finished.err = ReadToEnd(err_);
  int status = 0;
  EXPECT_EQ(waitpid(child_, &status, 0), child_);
  if (WIFEXITED(status)) finished.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) finished.signal = WTERMSIG(status);
  if (out_ >= 0) close(out_);
  close(err_);
  child_ = -1;
  return finished;
}

nlohmann::json ParseJson(std::string_view text, std::nullptr_t, bool allow_exceptions) {
  const storage::CLocale locale;
  return nlohmann::json::parse(text, nullptr, allow_exceptions);
}

nlohmann::json RunInspectJson(std::vector<std::string> arguments, int expected_exit_code) {
  arguments.push_back("--json");
  const Finished finished = RunInspect(arguments);
  EXPECT_EQ(finished.exit_code, expected_exit_code) << finished.err;
  nlohmann::json json = ParseJson(finished.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << finished.out;
  return json;
}

std::vector<std::string> EntryNames(const nlohmann::json& document) {
  std::vector<std::string> names;
  for (const nlohmann::json& entry : document["entries"]) names.push_back(entry["name"]);
  return names;
}

size_t Occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace tidemark::inspect
