// DotCanvas: dots and lines in Braille patterns, 2 by 4 dots to a character.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_DOT_CANVAS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_DOT_CANVAS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tidemark::inspect {

// Thread-compatible.
class DotCanvas {
 public:
  static constexpr size_t kDotsAcross = 2;  // of a character
  static constexpr size_t kDotsDown = 4;

  DotCanvas(size_t columns, size_t rows) : columns_(columns), cells_(columns * rows) {}

  // Dots are counted from the upper left corner. Precondition: they lie on the canvas.
  void SetDot(size_t x, size_t y);
  // Both ends included.
  void DrawLine(size_t from_x, size_t from_y, size_t to_x, size_t to_y);

  // A row of characters; those without dots are spaces.
  std::string Row(size_t row) const;

 private:
  const size_t columns_;
  std::vector<uint8_t> cells_;  // by row; the dots of each as Unicode numbers them
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_DOT_CANVAS_H_
