// Runs checkpoint-inspect as a process of its own, catches what it says, and looks into that.

#ifndef TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_INSPECT_TESTING_H_
#define TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_INSPECT_TESTING_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

namespace tidemark::inspect {

struct Finished {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;  // what a terminal got is here, of both streams
  std::string err;
  int64_t resident_kib_max = 0;  // the process's peak of resident memory, which begins with the test's own at the fork
};

struct RunOptions {
  std::string directory;                           // to run in; empty: where the test runs
  std::map<std::string, std::string> environment;  // all of it, with TERM=xterm unless it is set here
  bool terminal = false;                           // both streams are one terminal, and not files
  uint16_t terminal_columns = 0;                   // how wide it is; 0: it does not know
  std::string interrupt_at;                        // with a terminal: SIGINT is sent once it has shown this
  std::string out_path;                            // standard output is this file; empty: caught
  bool out_closed_pipe = false;                    // standard output is a pipe that nobody reads
  std::vector<int> closed;                         // of standard input, output and error
};

// For a command that waits for whoever holds the store: long enough for a machine that has much else to do; nobody
// waits for all of it.
inline constexpr const char* kPatience = "--wait=300";

Finished RunInspect(const std::vector<std::string>& arguments, const RunOptions& options = {});

// One that goes on until it is told to end; both streams are pipes, but for those that are closed. Killed at the latest
// when this is destroyed.
class RunningInspect {
 public:
  // `closed`: of standard input, output and error.
  explicit RunningInspect(const std::vector<std::string>& arguments, const std::vector<int>& closed = {});
  ~RunningInspect();
  RunningInspect(const RunningInspect&) = delete;
  RunningInspect& operator=(const RunningInspect&) = delete;

  // The next line, without its end, as soon as it is there; what is left where the stream ends.
  std::string ReadOutLine();
  std::string ReadErrLine();

  // Nobody reads standard output any more.
  void CloseOut();

  // Sends the signal, if it is not 0, and waits for the end. `out` and `err` are what had not been read.
  Finished Finish(int signal = 0);

 private:
  pid_t child_ = -1;
  int out_ = -1;
  int err_ = -1;
};

// In C's locale, since the parser expects the decimal point of the process's. Without exceptions, what is no JSON is a
// discarded value.
nlohmann::json ParseJson(std::string_view text, std::nullptr_t = nullptr, bool allow_exceptions = true);

// The same as RunInspect, with standard output as JSON; fails the test if it is none.
nlohmann::json RunInspectJson(std::vector<std::string> arguments, int expected_exit_code = 0);

// The names in a document's "entries", in their order.
std::vector<std::string> EntryNames(const nlohmann::json& document);

// How often `part` is in the text.
size_t Occurrences(const std::string& text, const std::string& part);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_INSPECT_TESTING_H_
