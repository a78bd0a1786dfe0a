#include "tools/checkpoint_inspect/cli/output_path.h"

namespace tidemark::inspect {

std::string CheckOutputPath(const std::string& path) {
  if (path.empty()) return "an empty path names no file";
  return path == "-" ? "cannot write to standard output; './-' is a file of that name" : "";
}

}  // namespace tidemark::inspect
