// Text of other processes, as it goes into a log: on one line, and without orders to the terminal.

#ifndef TIDEMARK_SNAPSHOT_PRINTABLE_LINE_H_
#define TIDEMARK_SNAPSHOT_PRINTABLE_LINE_H_

#include <string>
#include <string_view>

namespace tidemark {

// The text with its control characters (C0, DEL, and C1 in UTF-8) written as "\n", "\x1b" or "\u0085"; all else stays.
std::string PrintableLine(std::string_view text);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_PRINTABLE_LINE_H_
