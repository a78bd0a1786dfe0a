// The note that the holder of a lock leaves in its file (FileLock::WriteNote), as it is shown to whoever is kept out.

#ifndef TIDEMARK_STORAGE_IO_LOCK_NOTE_H_
#define TIDEMARK_STORAGE_IO_LOCK_NOTE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tidemark::storage {

// More than a host name, a process id and a time need; the rest of a longer note is not shown.
inline constexpr size_t kNoteBytesMax = 4096;

// The note on one line, as it may go to a terminal: its bytes may be anybody's.
std::string PrintableNote(std::string_view note);

// kUnavailable: the lock at `path` is held by whoever left the note.
absl::Status LockIsHeld(std::string_view path, std::string_view note);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_LOCK_NOTE_H_
