// Writes the golden file of format 1. It was run once; it is kept to say how the file came to be.

#include <cstdio>

#include "tests/format/golden_contents.h"

int main(int argc, char** argv) {
  using namespace tidemark::storage;
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_golden NEW_FILE\n");
    return 2;
  }
  TestContents contents = GoldenContents();
  auto writer = ShardWriter::Create(PosixFileSystem(), {.chunk_bytes = 65536, .io = IoQueueKind::kThreads});
  auto written = writer.ok() ? (*writer)->Write(argv[1], GoldenIdentity(), *contents) : writer.status();
  if (!written.ok()) {
    std::fprintf(stderr, "make_golden: %s\n", written.status().ToString().c_str());
    return 1;
  }
  return 0;
}
