// checkpoint-inspect: looks into a store. docs/checkpoint-inspect.md is its manual.

#include <fcntl.h>

#include <csignal>
#include <exception>

#include "tools/checkpoint_inspect/cli/console.h"
#include "tools/checkpoint_inspect/commands/commands.h"

namespace tidemark::inspect {
namespace {

ExitCode Run(Console& console, int argc, char** argv) {
  CommandLine line;
  AddLs(line);
  AddShow(line);
  AddTensors(line);
  AddHistory(line);
  AddStats(line);
  AddDiff(line);
  AddReport(line);
  AddTrace(line);
  AddVerify(line);
  AddPin(line);
  AddUnpin(line);
  AddTag(line);
  AddUntag(line);
  AddPrune(line);
  AddExport(line);
  AddImport(line);
  AddRepair(line);
  AddJournal(line);
  AddDoctor(line);
  AddShellPages(line);
  AddShellNames(line);
  ExitCode code = ExitCode::kFailure;
  try {
    code = line.Run(console, argc, argv);
  } catch (const std::exception& error) {
    console.Fail(error.what());
    code = line.trouble();
  }
  if (const absl::Status written = console.FlushData(); !written.ok()) {
    console.Fail(written);
    code = line.trouble();
  }
  return code;
}

// Where the caller has closed one of the three, the next file that is opened would get its number, and what is said on
// standard error would go into that. Nothing can be written to what takes its place.
void OccupyStandardStreams() {
  for (const int stream : {0, 1, 2}) {
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDONLY);
  }
}

}  // namespace
}  // namespace tidemark::inspect

int main(int argc, char** argv) {
  // Whoever started us may ignore SIGPIPE. A reader that has seen enough ends us without a word.
  std::signal(SIGPIPE, SIG_DFL);
  tidemark::inspect::OccupyStandardStreams();
  tidemark::inspect::Console console;
  return static_cast<int>(tidemark::inspect::Run(console, argc, argv));
}
