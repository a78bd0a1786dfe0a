#include "tools/checkpoint_inspect/output/dot_canvas.h"

#include <algorithm>
#include <cstdlib>

namespace tidemark::inspect {
namespace {

// The Unicode Standard, chapter 21.1: the bits of U+2800 and on, by row and column of the dot.
constexpr uint8_t kBits[DotCanvas::kDotsDown][DotCanvas::kDotsAcross] = {
    {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

}  // namespace

void DotCanvas::SetDot(size_t x, size_t y) {
  cells_[y / kDotsDown * columns_ + x / kDotsAcross] |= kBits[y % kDotsDown][x % kDotsAcross];
}

void DotCanvas::DrawLine(size_t from_x, size_t from_y, size_t to_x, size_t to_y) {
  const auto across = static_cast<int64_t>(to_x) - static_cast<int64_t>(from_x);
  const auto down = static_cast<int64_t>(to_y) - static_cast<int64_t>(from_y);
  const int64_t steps = std::max<int64_t>({1, std::abs(across), std::abs(down)});
  // Rounded to the nearest dot; the offset keeps the dividend positive.
  const auto at = [steps](size_t from, int64_t distance, int64_t i) {
    return static_cast<size_t>((2 * (static_cast<int64_t>(from) * steps + distance * i) + steps) / (2 * steps));
  };
  for (int64_t i = 0; i <= steps; ++i) SetDot(at(from_x, across, i), at(from_y, down, i));
}

std::string DotCanvas::Row(size_t row) const {
  std::string text;
  for (size_t column = 0; column < columns_; ++column) {
    const uint8_t dots = cells_[row * columns_ + column];
    if (dots == 0) {
      text.push_back(' ');
      continue;
    }
    // U+2800 + dots, in UTF-8.
    text.push_back('\xe2');
    text.push_back(static_cast<char>(0xa0 | dots >> 6));
    text.push_back(static_cast<char>(0x80 | (dots & 0x3f)));
  }
  return text;
}

}  // namespace tidemark::inspect
