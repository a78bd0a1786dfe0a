#include "storage/io/printable_text.h"

#include <array>
#include <optional>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

bool TurnsDirection(char32_t c) {
  return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::optional<std::string> EscapeOf(CodePoint point, unsigned char first) {
  const char32_t c = point.value;
  if (c == CodePoint::kInvalid) return fmt::format("\\x{:02x}", first);
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  if (c < 0x20 || (c >= 0x7F && c <= 0x9F)) return fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  if (c == 0x2028 || c == 0x2029 || TurnsDirection(c)) return fmt::format("\\u{{{:04x}}}", static_cast<uint32_t>(c));
  return std::nullopt;
}

}  // namespace

CodePoint DecodeFront(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return {CodePoint::kInvalid, 1};
  char32_t value = first & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {CodePoint::kInvalid, 1};
    value = (value << 6) | (byte(i) & 0x3F);
  }
  constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[length] || value > 0x10FFFF || surrogate) return {CodePoint::kInvalid, 1};
  return {value, length};
}

std::string PrintableText(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (;;) {
    size_t plain = 0;
    while (plain < text.size() && text[plain] >= 0x20 && text[plain] < 0x7F) ++plain;
    escaped += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) return escaped;
    const CodePoint point = DecodeFront(text);
    if (auto replacement = EscapeOf(point, static_cast<unsigned char>(text[0]))) {
      escaped += *replacement;
    } else {
      escaped += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
}

}  // namespace tidemark::storage
