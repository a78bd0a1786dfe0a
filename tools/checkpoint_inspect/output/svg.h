// Pieces of SVG that every chart is made of. Pure functions. Colours are the page's: elements have classes.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_SVG_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_SVG_H_

#include <string>
#include <string_view>

namespace tidemark::inspect {

// A length or a place in user units, to a tenth: "12.5", "7".
std::string Px(double value);

// "<svg ...>" with a role and, for those who do not see it, a title and a description. Width and height in user units;
// the page may scale it down. `css_class` beside "chart".
std::string SvgBegin(double width, double height, std::string_view css_class, std::string_view title,
                     std::string_view description);

enum class Anchor { kStart, kMiddle, kEnd };
// `text` is escaped here. `turned`: by so many degrees about its place.
std::string SvgText(double x, double y, std::string_view css_class, Anchor anchor, std::string_view text,
                    double turned = 0);

std::string SvgLine(double x1, double y1, double x2, double y2, std::string_view css_class);

// With `title`, which is escaped here, for whoever points at it; empty: none.
std::string SvgRect(double x, double y, double width, double height, std::string_view css_class,
                    std::string_view title = "");

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_SVG_H_
