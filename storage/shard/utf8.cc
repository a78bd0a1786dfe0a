#include "storage/shard/utf8.h"

#include "storage/io/printable_text.h"

namespace tidemark::storage {

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = DecodeFront(text);
    if (point.value == CodePoint::kInvalid) return false;
    text.remove_prefix(point.bytes);
  }
  return true;
}

}  // namespace tidemark::storage
