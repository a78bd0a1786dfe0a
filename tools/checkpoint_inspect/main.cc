// checkpoint-inspect: looks into a store. docs/checkpoint-inspect.md is its manual.

#include <csignal>
#include <exception>

#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/console.h"

namespace tidemark::inspect {
namespace {

ExitCode Run(Console& console, int argc, char** argv) {
  CommandLine line;
  AddLs(line);
  AddShow(line);
  AddHistory(line);
  AddReport(line);
  AddTrace(line);
  AddVerify(line);
  AddRepair(line);
  return line.Run(console, argc, argv);
}

}  // namespace
}  // namespace tidemark::inspect

int main(int argc, char** argv) {
  using tidemark::inspect::ExitCode;
  // Whoever started us may ignore SIGPIPE. A reader that has seen enough ends us without a word.
  std::signal(SIGPIPE, SIG_DFL);
  tidemark::inspect::Console console;
  ExitCode code = ExitCode::kFailure;
  try {
    code = tidemark::inspect::Run(console, argc, argv);
  } catch (const std::exception& error) {
    console.Fail(error.what());
  }
  if (const absl::Status written = console.FlushData(); !written.ok()) {
    console.Fail(written);
    code = ExitCode::kFailure;
  }
  return static_cast<int>(code);
}
