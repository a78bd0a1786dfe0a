// Text that comes from files or other processes, as it may go into an error message, a log or a terminal: without
// orders to the terminal, without lines of its own, and readable as UTF-8 whatever it is.

#ifndef TIDEMARK_STORAGE_IO_PRINTABLE_TEXT_H_
#define TIDEMARK_STORAGE_IO_PRINTABLE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tidemark::storage {

// A code point at the front of a text.
struct CodePoint {
  static constexpr char32_t kInvalid = 0xFFFFFFFF;
  char32_t value = kInvalid;
  size_t bytes = 1;
};

// The one at the front of `text`, which is not empty; kInvalid and one byte where there is none.
CodePoint DecodeFront(std::string_view text);

// The text with control characters (C0, DEL and C1), line separators, marks that turn the direction of writing, and
// bytes that are not UTF-8 written as "\n", "\x1b", "\u{202e}" or "\xff". All else stays, a backslash included, so that
// text that has been made printable stays as it is.
std::string PrintableText(std::string_view text);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_PRINTABLE_TEXT_H_
