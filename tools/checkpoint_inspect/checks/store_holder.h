// Finds the process that has a store open for writing, and changes no byte of the store.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STORE_HOLDER_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STORE_HOLDER_H_

#include <string>
#include <string_view>

namespace tidemark::inspect {

// "the trainer (char_lm, pid 7040 on vm)", "checkpoint-inspect (pid 7041 on vm)", by the note in its lock file;
// "another process" if the note is empty. Printable.
std::string HolderText(std::string_view note);

// The same for the process that holds the lock of the store; empty if there is no such process, or if that cannot be
// found out. `directory`: without links.
std::string StoreHolder(const std::string& directory);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STORE_HOLDER_H_
