#include "tools/checkpoint_inspect/output/html_page.h"

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// The series' colours are those of Okabe and Ito, which colour-blind people can tell apart. On white paper they are
// darkened to a contrast of 3 : 1 (WCAG 2.1, 1.4.11); the heat map's go from light to dark (on dark paper from dark to
// light) in one direction. Text has a contrast of at least 4.5 : 1 to what it stands on, in both; the test of this file
// reckons it.
constexpr std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #ffffff; --ink: #1b1f24; --soft: #57606a; --rule: #d8dee4; --grid: #e7ebef; --shade: #f3f5f7;
  --good: #116329; --warning: #7d4e00; --bad: #b3261e; --hover: #57606a22;
  --s0: #0072b2; --s1: #b97f00; --s2: #009e73; --s3: #cc79a7; --s4: #d55e00; --s5: #857b00; --s6: #3a97cf;
  --s7: #8a929a;
  --over: #1b1f24; --star: #b97f00; --pin: #9a4f7c;
  --h0: #e4f4b8; --h1: #c7e9b4; --h2: #7fcdbb; --h3: #41b6c4; --h4: #1d91c0; --h5: #225ea8; --h6: #253494; --h7: #081d58;
  --same: #e4e7ea; --equal: #b9c1c9; --fromzero: #cc79a7; --nonfinite: #d55e00;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #0f1318; --card: #161b22; --ink: #e6eaef; --soft: #a3adb8; --rule: #343c46; --grid: #262d36; --shade: #1d242c;
    --good: #6fd58b; --warning: #f0b44c; --bad: #ff9489; --hover: #a3adb82e;
    --s0: #56b4e9; --s1: #e69f00; --s2: #1fbf92; --s3: #e08fbc; --s4: #ff8a4c; --s5: #f0e442; --s6: #8fd0f5;
    --s7: #9aa4ae;
    --over: #e6eaef; --star: #f5b92e; --pin: #e08fbc;
    --h0: #3b2c6b; --h1: #3e4a89; --h2: #31688e; --h3: #26828e; --h4: #1f9e89; --h5: #4ec36b; --h6: #a5db36; --h7: #fde725;
    --same: #2b323b; --equal: #4a535e; --fromzero: #e08fbc; --nonfinite: #ff7a33;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 28px 24px 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 44px 0 4px; padding-top: 14px; border-top: 1px solid var(--rule); }
h3 { font-size: 15px; margin: 0; overflow-wrap: anywhere; }
p { margin: 4px 0 12px; max-width: 78ch; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.good { color: var(--good); } .warning { color: var(--warning); } .bad { color: var(--bad); }
code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; margin: 8px 0; overflow-x: auto; }
.verdict { border-left: 4px solid currentColor; padding: 8px 14px; background: var(--shade); margin: 16px 0; max-width: none; }
.verdict span { color: var(--ink); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 16px 0; padding: 0; }
.facts div { border: 1px solid var(--rule); border-radius: 8px; padding: 10px 14px; background: var(--card); }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; font-size: 21px; font-weight: 600; overflow-wrap: anywhere; }
.facts dd small { display: block; font-size: 13px; font-weight: 400; color: var(--soft); }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 440px), 1fr)); gap: 18px; margin: 12px 0; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 250px), 1fr)); }
figure {
  margin: 0; border: 1px solid var(--rule); border-radius: 8px; padding: 12px 14px; background: var(--card);
  break-inside: avoid; min-width: 0;
}
figcaption { display: flow-root; margin-bottom: 4px; }
figure p { font-size: 13px; margin: 2px 0 0; }
.scroll { overflow-x: auto; }
svg.chart { display: block; width: 100%; height: auto; font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
svg.heat { width: auto; max-width: none; height: auto; }
svg.icon { vertical-align: -3px; margin-right: 5px; }
svg text { fill: var(--soft); font-variant-numeric: tabular-nums; }
svg text.row { fill: var(--ink); font-size: 11.5px; }
line.grid { stroke: var(--grid); }
line.axis { stroke: var(--soft); }
path.line { fill: none; stroke: var(--s0); stroke-width: 1.8; stroke-linejoin: round; }
path.over { fill: none; stroke: var(--over); stroke-width: 1.6; stroke-dasharray: 5 3; }
circle.saved { fill: var(--s0); }
circle.deleted { fill: var(--card); stroke: var(--soft); stroke-width: 1.2; }
rect.damaged { fill: none; stroke: var(--bad); stroke-width: 2; }
path.pinned { fill: none; stroke: var(--pin); stroke-width: 1.8; }
path.best { fill: var(--star); stroke: var(--ink); stroke-width: 0.8; }
path.unhealthy { fill: none; stroke: var(--s4); stroke-width: 2.4; }
path.notfinite { fill: var(--s4); }
rect.hover { fill: transparent; }
rect.hover:hover { fill: var(--hover); }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
.s4 { fill: var(--s4); } .s5 { fill: var(--s5); } .s6 { fill: var(--s6); } .s7 { fill: var(--s7); }
.h0 { fill: var(--h0); background: var(--h0); } .h1 { fill: var(--h1); background: var(--h1); }
.h2 { fill: var(--h2); background: var(--h2); } .h3 { fill: var(--h3); background: var(--h3); }
.h4 { fill: var(--h4); background: var(--h4); } .h5 { fill: var(--h5); background: var(--h5); }
.h6 { fill: var(--h6); background: var(--h6); } .h7 { fill: var(--h7); background: var(--h7); }
.same { fill: var(--same); background: var(--same); }
.equal { fill: var(--equal); background: var(--equal); }
.fromzero { fill: var(--fromzero); background: var(--fromzero); }
.nonfinite { fill: var(--nonfinite); background: var(--nonfinite); }
rect.unread { fill: transparent; stroke: var(--rule); }
span.unread { outline: 1px solid var(--rule); outline-offset: -1px; }
.heat rect:hover { stroke: var(--ink); stroke-width: 1.5; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 6px 0 10px; padding: 0; font-size: 13px; color: var(--soft); }
.swatch { display: inline-block; width: 14px; height: 14px; margin-right: 6px; vertical-align: -2px; border-radius: 2px; }
input.switch { float: right; margin: 5px 0 0 8px; }
label.switch { float: right; font-size: 13px; color: var(--soft); }
.log { display: none; }
input.switch:checked ~ .log { display: block; }
input.switch:checked ~ .linear { display: none; }
table { border-collapse: collapse; font-size: 13.5px; width: 100%; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--soft); font-weight: 600; border-bottom-color: var(--rule); white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.wide { min-width: 200px; overflow-wrap: anywhere; }
td.metric { white-space: nowrap; }
td.metrics { min-width: 330px; font-size: 12.5px; overflow-wrap: anywhere; }
tbody tr:hover { background: var(--shade); }
details { margin: 10px 0; }
details summary { cursor: pointer; color: var(--soft); }
footer { margin-top: 48px; padding-top: 12px; border-top: 1px solid var(--rule); font-size: 13px; color: var(--soft); }
@media (max-width: 640px) { main { padding: 18px 14px 40px; } h1 { font-size: 22px; } figure { padding: 10px 8px; } }
@media print {
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  svg.heat { max-width: 100%; }
  input.switch, label.switch { display: none; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
}
)css";

}  // namespace

std::string HtmlEscape(std::string_view text) {
  std::string html;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    for (const char c : Escape(text.substr(begin, end - begin))) {
      switch (c) {
        case '&':
          html += "&amp;";
          break;
        case '<':
          html += "&lt;";
          break;
        case '>':
          html += "&gt;";
          break;
        case '"':
          html += "&quot;";
          break;
        case '\'':
          html += "&#39;";
          break;
        default:
          html += c;
      }
    }
    if (end < text.size()) html += '\n';
    begin = end + 1;
  }
  return html;
}

std::string HtmlPage(std::string_view title, std::string_view body) {
  std::string page = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  page +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "base-uri 'none'; form-action 'none'\">\n";
  page += "<meta name=\"referrer\" content=\"no-referrer\">\n";
  page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  page += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n", HtmlEscape(title), kStyle);
  page += body;
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace tidemark::inspect
