#include "storage/shard/utf8.h"

#include "storage/io/printable_text.h"

namespace tidemark::storage {

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    if (static_cast<unsigned char>(text.front()) < 0x80) {  // most names have no others
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
