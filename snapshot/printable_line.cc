#include "snapshot/printable_line.h"

#include <cstddef>

#include "fmt/format.h"

namespace tidemark {

std::string PrintableLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    if (byte == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F
      line += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      line += text[i];
    }
  }
  return line;
}

}  // namespace tidemark
