// Whether text is UTF-8, as names in a store must be.

#ifndef TIDEMARK_STORAGE_BYTES_UTF8_H_
#define TIDEMARK_STORAGE_BYTES_UTF8_H_

#include <string_view>

namespace tidemark::storage {

// As Unicode defines it: shortest forms, no surrogates, nothing past U+10FFFF.
bool IsUtf8(std::string_view text);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_BYTES_UTF8_H_
