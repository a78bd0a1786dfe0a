// A name that a message refers to, which may be of any bytes and of any length.

#ifndef TIDEMARK_STORAGE_IO_QUOTED_NAME_H_
#define TIDEMARK_STORAGE_IO_QUOTED_NAME_H_

#include <string>
#include <string_view>

namespace tidemark::storage {

// The name in single quotes, made printable (PrintableText). Of a name of more than 64 bytes the first 64 and "...",
// and up to 3 bytes less where a character would be cut.
std::string QuotedName(std::string_view name);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_QUOTED_NAME_H_
