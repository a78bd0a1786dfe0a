// What checkpoint-inspect's exit status says; docs/checkpoint-inspect.md has the same list. The numbers are frozen.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_EXIT_CODE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_EXIT_CODE_H_

namespace tidemark::inspect {

enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,             // anything that has no number of its own
  kUsage = 2,               // the command line
  kDamagedButUsable = 3,    // something is damaged, and a valid step remains
  kNoStore = 10,            // no such directory, or no store in it
  kLocked = 11,             // another process has the store open, and this needs it
  kNothingRestorable = 12,  // no step is committed
  kIntegrity = 13,          // the step asked for is damaged, or no valid step remains
  kNewerFormat = 14,        // written by a newer version, or by a version of the first format; not converted yet
  kInterrupted = 130,       // by Ctrl-C; nothing half-written is left

  // Of diff, which has no other numbers but kOk: the same as those of diff(1).
  kDifferent = 1,
  kTrouble = 2,
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_EXIT_CODE_H_
