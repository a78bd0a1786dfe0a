// Writes a golden file. It was run once for each version; it is kept to say how the files came to be.

#include <cstdio>

#include "tests/format/golden_contents.h"

namespace tidemark::storage {
namespace {

absl::Status MakeVersion1(const std::string& path) {
  TestContents contents = GoldenContents();
  auto writer = ShardWriter::Create(PosixFileSystem(), {.chunk_bytes = 65536, .io = IoQueueKind::kThreads});
  if (!writer.ok()) return writer.status();
  return (*writer)->Write(path, GoldenIdentity(), *contents).status();
}

absl::Status MakeVersion2(const std::string& path, const std::string& version_1) {
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
                 "usage: make_golden NEW_FILE                    version 1\n"
                 "       make_golden NEW_FILE FILE_OF_VERSION_1  version 2\n");
    return 2;
  }
  const absl::Status made =
      argc == 2 ? tidemark::storage::MakeVersion1(argv[1]) : tidemark::storage::MakeVersion2(argv[1], argv[2]);
  if (made.ok()) return 0;
  std::fprintf(stderr, "make_golden: %s\n", made.ToString().c_str());
  return 1;
}
