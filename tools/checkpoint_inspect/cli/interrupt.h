// Ctrl-C: a command that takes long, or that writes a file, looks here and ends in good order.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_INTERRUPT_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_INTERRUPT_H_

namespace tidemark::inspect {

// From here on SIGINT and SIGTERM end the process no more: the first one makes IsInterrupted() true, a second one
// kills. For commands that write, or that read so much that somebody waits; others may be killed at any time. A handler
// that is there already stays: it is of a program that calls commands, such as a fuzzer.
void CatchInterrupts();

// Whether one has come. Any thread.
bool IsInterrupted();

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_INTERRUPT_H_
