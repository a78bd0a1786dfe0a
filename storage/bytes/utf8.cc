#include "storage/bytes/utf8.h"

#include <cstdint>
#include <cstring>

#include "storage/io/printable_text.h"

namespace tidemark::storage {

bool IsUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080'8080'8080'8080;
  while (!text.empty()) {
    // Most text is ASCII.
    if (uint64_t word = 0; text.size() >= sizeof(word)) {
      std::memcpy(&word, text.data(), sizeof(word));
      if ((word & kHighBits) == 0) {
        text.remove_prefix(sizeof(word));
        continue;
      }
    }
    if ((static_cast<unsigned char>(text.front()) & 0x80) == 0) {
      text.remove_prefix(1);
      continue;
    }
    const CodePoint point = DecodeFront(text);
    if (point.value == CodePoint::kInvalid) return false;
    text.remove_prefix(point.bytes);
  }
  return true;
}

}  // namespace tidemark::storage
