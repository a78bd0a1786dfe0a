// The manual page, made from the command line itself. A pure function.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_MAN_PAGE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_MAN_PAGE_H_

#include <string>
#include <string_view>

#include "CLI/CLI.hpp"

namespace tidemark::inspect {

// roff with the macros of man(7), in ASCII, for section 1. No date: the same version gives the same bytes.
std::string ManPage(const CLI::App& app, std::string_view version);

// Text for roff to print as it is: no request, no escape, no hyphen that was a minus.
std::string RoffText(std::string_view text);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CLI_MAN_PAGE_H_
