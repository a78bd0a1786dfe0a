// Runs checkpoint-inspect as a process of its own and catches what it says.

#ifndef TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_INSPECT_TESTING_H_
#define TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_INSPECT_TESTING_H_

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace tidemark::inspect {

struct Finished {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;  // what a terminal got is here, of both streams
  std::string err;
};

struct RunOptions {
  std::string directory;                           // to run in; empty: where the test runs
  std::map<std::string, std::string> environment;  // all of it, with TERM=xterm unless it is set here
  bool terminal = false;                           // both streams are one terminal, and not files
  std::string interrupt_at;                        // with a terminal: SIGINT is sent once it has shown this
  std::string out_path;                            // standard output is this file; empty: caught
  bool out_closed_pipe = false;                    // standard output is a pipe that nobody reads
};

Finished RunInspect(const std::vector<std::string>& arguments, const RunOptions& options = {});

// The same, with standard output as JSON; fails the test if it is none.
nlohmann::json RunInspectJson(std::vector<std::string> arguments, int expected_exit_code = 0);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_INSPECT_TESTING_H_
