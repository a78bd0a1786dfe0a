// Writes the hostile files, FOLDER/CLASS-NAME.ENDING, to be looked at or fed to something else, and FOLDER/cases.txt:
// of each its name, the code and a part of the message of the error that it must get, with tabs between them.
//
//   fuzz_make_hostile FOLDER

#include <cstdio>
#include <filesystem>
#include <vector>

#include "fuzz/hostile_case.h"

namespace tidemark::fuzz {
namespace {

bool Write(const std::filesystem::path& folder, const HostileCase& hostile) {
  const std::filesystem::path path = folder / hostile.file;
  if (WriteHostileFile(hostile, path)) return true;
  std::fprintf(stderr, "%s cannot be written\n", path.c_str());
  return false;
}

int WriteAll(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<HostileCase> cases = HostileCases();
  for (const HostileCase& hostile : cases) {
    if (!Write(folder, hostile)) return 1;
  }
  return Write(folder, {.file = "cases.txt", .message = "", .bytes = HostileTable(cases)}) ? 0 : 1;
}

}  // namespace
}  // namespace tidemark::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_make_hostile FOLDER\n");
    return 2;
  }
  return tidemark::fuzz::WriteAll(argv[1]);
}
