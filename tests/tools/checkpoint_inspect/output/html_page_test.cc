#include "tools/checkpoint_inspect/output/html_page.h"

#include <cmath>
#include <map>
#include <regex>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::HasSubstr;
using testing::Not;

// The colours of the style's n-th :root block, by name.
std::map<std::string, std::string> Colours(const std::string& page, int block) {
  size_t begin = 0;
  for (int i = 0; i <= block; ++i) begin = page.find(":root {", begin + 1);
  const std::string text = page.substr(begin, page.find('}', begin) - begin);
  std::map<std::string, std::string> colours;
  const std::regex colour("--([a-z0-9]+): (#[0-9a-f]{6});");
  for (std::sregex_iterator match(text.begin(), text.end(), colour), end; match != end; ++match) {
    colours[(*match)[1]] = (*match)[2];
  }
  return colours;
}

// As WCAG 2.1 defines both.
double Luminance(const std::string& colour) {
  double luminance = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (int i = 0; i < 3; ++i) {
    const double part = std::stoi(colour.substr(1 + 2 * static_cast<size_t>(i), 2), nullptr, 16) / 255.0;
    luminance += weights[i] * (part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
  }
  return luminance;
}
double Contrast(const std::string& a, const std::string& b) {
  const double first = Luminance(a);
  const double second = Luminance(b);
  return (std::max(first, second) + 0.05) / (std::min(first, second) + 0.05);
}

TEST(HtmlEscape, LeavesNothingThatMeansSomething) {
  EXPECT_EQ(HtmlEscape("<script>\"x\" & 'y'</script>]]>"),
            "&lt;script&gt;&quot;x&quot; &amp; &#39;y&#39;&lt;/script&gt;]]&gt;");
  EXPECT_EQ(HtmlEscape("plain, ümlaut"), "plain, ümlaut");
  EXPECT_EQ(HtmlEscape(""), "");
}

TEST(HtmlEscape, KeepsLineEndsAndNoOtherControls) {
  EXPECT_EQ(HtmlEscape("a\nb\n"), "a\nb\n");
  EXPECT_EQ(HtmlEscape("\x1b[31m\xff\t\u202e<"), "\\x1b[31m\\xff\\t\\u{202e}&lt;");
  EXPECT_EQ(HtmlEscape(std::string_view("\0<", 2)), "\\x00&lt;");
}

TEST(HtmlPage, LetsNothingBeLoadedAndNothingRun) {
  const std::string page = HtmlPage("a <title>", "<p>body</p>");
  EXPECT_THAT(page, HasSubstr("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                              "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"));
  EXPECT_THAT(page, HasSubstr("<title>a &lt;title&gt;</title>"));
  // The policy stands before anything that it is about.
  EXPECT_LT(page.find("Content-Security-Policy"), page.find("<style>"));
  for (const char* outside :
       {"http:", "https:", "src=", "href=", "url(", "@import", "@font-face", "<script", "<link"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside))) << outside;
  }
}

TEST(HtmlPage, HasTextThatCanBeReadInLightAndDark) {
  const std::string page = HtmlPage("", "");
  for (const int block : {0, 1}) {
    const std::map<std::string, std::string> colours = Colours(page, block);
    for (const char* text : {"ink", "soft", "good", "warning", "bad"}) {
      for (const char* ground : {"paper", "card", "shade"}) {
        ASSERT_TRUE(colours.contains(text) && colours.contains(ground)) << text << " " << ground;
        EXPECT_GE(Contrast(colours.at(text), colours.at(ground)), 4.5) << block << " " << text << " on " << ground;
      }
    }
  }
}

// WCAG 2.1, 1.4.11: lines, bars and marks.
TEST(HtmlPage, HasGraphicsThatCanBeSeenInLightAndDark) {
  const std::string page = HtmlPage("", "");
  for (const int block : {0, 1}) {
    const std::map<std::string, std::string> colours = Colours(page, block);
    for (const char* drawn : {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "over", "star", "pin"}) {
      EXPECT_GE(Contrast(colours.at(drawn), colours.at("card")), 3) << block << " " << drawn;
    }
  }
}

TEST(HtmlPage, HasAHeatMapOfOneDirection) {
  const std::string page = HtmlPage("", "");
  for (const int block : {0, 1}) {
    const std::map<std::string, std::string> colours = Colours(page, block);
    for (int level = 0; level < 7; ++level) {
      const double here = Luminance(colours.at("h" + std::to_string(level)));
      const double next = Luminance(colours.at("h" + std::to_string(level + 1)));
      EXPECT_TRUE(block == 0 ? here > next : here < next) << block << " " << level;
    }
  }
}

}  // namespace
}  // namespace tidemark::inspect
