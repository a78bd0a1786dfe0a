#include "storage/io/quoted_name.h"

#include <cstddef>

#include "fmt/format.h"
#include "storage/io/printable_text.h"

namespace tidemark::storage {

std::string QuotedName(std::string_view name) {
  constexpr size_t kShownBytesMax = 64;
  constexpr size_t kCharacterBytesMax = 4;
  if (name.size() <= kShownBytesMax) return fmt::format("'{}'", PrintableText(name));
  const auto continues = [&](size_t i) { return (static_cast<unsigned char>(name[i]) & 0xC0) == 0x80; };
  size_t end = kShownBytesMax;
  while (kShownBytesMax - end < kCharacterBytesMax && continues(end)) --end;
  if (continues(end)) end = kShownBytesMax;  // no character of UTF-8
  return fmt::format("'{}...'", PrintableText(name.substr(0, end)));
}

}  // namespace tidemark::storage
