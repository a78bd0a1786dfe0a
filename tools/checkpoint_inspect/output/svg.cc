#include "tools/checkpoint_inspect/output/svg.h"

#include <cmath>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/html_page.h"

namespace tidemark::inspect {

std::string Px(double value) {
  const double tenths = std::round(value * 10);
  if (tenths == 0) return "0";  // not "-0"
  return fmt::format("{:.{}f}", tenths / 10, std::fmod(tenths, 10) == 0 ? 0 : 1);
}

std::string SvgBegin(double width, double height, std::string_view css_class, std::string_view title,
                     std::string_view description) {
  return fmt::format(
      "<svg class=\"chart {}\" role=\"img\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\">"
      "<title>{}</title><desc>{}</desc>\n",
      css_class, Px(width), Px(height), Px(width), Px(height), HtmlEscape(title), HtmlEscape(description));
}

std::string SvgText(double x, double y, std::string_view css_class, Anchor anchor, std::string_view text,
                    double turned) {
  constexpr std::string_view kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  const std::string turn = turned == 0 ? "" : fmt::format(" transform=\"rotate({} {} {})\"", Px(turned), Px(x), Px(y));
  return fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\"{}{}>{}</text>\n", Px(x), Px(y), css_class,
                     kAnchors[static_cast<int>(anchor)], turn, HtmlEscape(text));
}

std::string SvgLine(double x1, double y1, double x2, double y2, std::string_view css_class) {
  return fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n", Px(x1), Px(y1), Px(x2), Px(y2),
                     css_class);
}

std::string SvgRect(double x, double y, double width, double height, std::string_view css_class,
                    std::string_view title) {
  const std::string begin = fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"", Px(x), Px(y),
                                        Px(width), Px(height), css_class);
  if (title.empty()) return begin + "/>\n";
  return fmt::format("{}><title>{}</title></rect>\n", begin, HtmlEscape(title));
}

}  // namespace tidemark::inspect
