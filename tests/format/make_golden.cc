// Writes a golden file. It was run once for each version; it is kept to say how the files came to be.

#include <cstdio>
#include <string>
#include <string_view>

#include "tests/format/golden_contents.h"

namespace tidemark::storage {
namespace {

absl::Status Write(const std::string& path, const ShardIdentity& identity, TestContents contents) {
  auto writer = ShardWriter::Create(PosixFileSystem(), {.chunk_bytes = 65536, .io = IoQueueKind::kThreads});
  if (!writer.ok()) return writer.status();
  return (*writer)->Write(path, identity, *contents).status();
}

absl::Status MakeDelta(const std::string& path, const std::string& version_1) {
  auto base = ShardReader::Open(PosixFileSystem(), version_1, ".");
  if (!base.ok()) return base.status();
  WriteWhole(path, MakeGoldenDelta(**base));
  return absl::OkStatus();
}

}  // namespace
}  // namespace tidemark::storage

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr,
                 "usage: make_golden NEW_FILE               format-1.tmk\n"
                 "       make_golden NEW_FILE FORMAT_1_TMK  format-2.tmk\n"
                 "       make_golden NEW_FILE boxes         header-2.tmk\n");
    return 2;
  }
  using namespace tidemark::storage;
  absl::Status made;
  if (argc == 2) {
    made = Write(argv[1], GoldenIdentity(), GoldenContents());
  } else if (std::string_view(argv[2]) == "boxes") {
    made = Write(argv[1], GoldenBoxesIdentity(), GoldenBoxesContents());
  } else {
    made = MakeDelta(argv[1], argv[2]);
  }
  if (made.ok()) return 0;
  std::fprintf(stderr, "make_golden: %s\n", made.ToString().c_str());
  return 1;
}
