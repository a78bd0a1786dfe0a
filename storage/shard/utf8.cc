#include "storage/shard/utf8.h"

#include <cstddef>
#include <cstdint>

namespace tidemark::storage {

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    if (lead < 0x80) continue;
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i < static_cast<size_t>(more)) return false;
    uint32_t code = lead & (0x3f >> more);
    for (int k = 0; k < more; ++k) {
      const auto next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    if (more == 2 && (code < 0x800 || (code >= 0xd800 && code <= 0xdfff))) return false;
    if (more == 3 && (code < 0x10000 || code > 0x10ffff)) return false;
  }
  return true;
}

}  // namespace tidemark::storage
