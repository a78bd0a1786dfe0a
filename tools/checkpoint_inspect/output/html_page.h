// A web page that stands on its own: what it shows lies in the one file, and it asks nobody for anything. Pure
// functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HTML_PAGE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HTML_PAGE_H_

#include <string>
#include <string_view>

namespace tidemark::inspect {

// Text that came out of a store, as the content of an element or the value of an attribute in either quotes, of HTML or
// of SVG: Escape, and then what means something there. Line ends stay.
std::string HtmlEscape(std::string_view text);

// The whole page. `title` is escaped here, `body` is HTML already. Its Content-Security-Policy lets nothing be loaded
// and no script run; styles are its own. Light or dark as the reader's system is, light on paper.
std::string HtmlPage(std::string_view title, std::string_view body);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HTML_PAGE_H_
