#include "storage/io/lock_note.h"

#include "fmt/format.h"
#include "storage/io/printable_text.h"

namespace tidemark::storage {

std::string PrintableNote(std::string_view note) {
  note = note.substr(0, kNoteBytesMax);
  if (note.ends_with('\n')) note.remove_suffix(1);
  return PrintableText(note);
}

absl::Status LockIsHeld(std::string_view path, std::string_view note) {
  const std::string holder = PrintableNote(note);
  return absl::UnavailableError(
      fmt::format("lock {}: held by {}", path, holder.empty() ? "a process that wrote no note" : holder));
}

}  // namespace tidemark::storage
