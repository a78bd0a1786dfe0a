// The main of a fuzz target where there is no libFuzzer: runs it on nothing, and on every file of the folders that are
// named, so that what the target calls cannot change without it.
//
//   fuzz_TARGET FILE|FOLDER...
//
// The last line on standard output is the file that the process died of.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzzing.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> FilesOf(const std::vector<fs::path>& named) {
  std::vector<fs::path> files;
  for (const fs::path& path : named) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<fs::path> files = FilesOf({argv + 1, argv + argc});
  if (files.empty()) {
    std::fprintf(stderr, "%s: there is no file to replay\n", argv[0]);
    return 1;
  }
  LLVMFuzzerTestOneInput(nullptr, 0);
  for (const fs::path& path : files) {
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    std::ifstream in(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (!in.good() && !in.eof()) {
      std::fprintf(stderr, "%s: it cannot be read\n", path.c_str());
      return 1;
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%zu inputs\n", files.size());
  return 0;
}
