// A process that writes a manifest while a test follows it: manifest_writer PATH COMMITS
//
// Commits steps 1, 2, ... as sequences 1, 2, ..., and writes one byte to standard output when each is committed. The
// records are large enough that tables are written and merged all the time, and the manifest is closed and opened again
// now and then.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "storage/manifest/manifest.h"

namespace tidemark::storage {
namespace {

constexpr int64_t kCommitsBetweenOpens = 60;
constexpr size_t kMetadataBytes = 30'000;

int Run(const std::string& path, int64_t commits) {
  absl::StatusOr<std::unique_ptr<Manifest>> manifest = Manifest::Create(PosixFileSystem(), path, StoreId{{7}});
  StepRecord record;
  record.info.user_metadata = "{\"padding\": \"" + std::string(kMetadataBytes, 'x') + "\"}";
  for (int64_t i = 1; i <= commits && manifest.ok(); ++i) {
    if (i % kCommitsBetweenOpens == 0) {
      manifest->reset();
      manifest = Manifest::Open(PosixFileSystem(), path);
      if (!manifest.ok()) break;
    }
    record.info.step = i;
    record.info.attempt = ToHex(AttemptId{{static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)}}.bytes);
    record.info.sequence = static_cast<uint64_t>(i);
    if (absl::Status status = (*manifest)->Commit(record).status(); !status.ok()) {
      manifest = status;
      break;
    }
    if (write(STDOUT_FILENO, ".", 1) != 1) return 1;
  }
  if (manifest.ok()) return 0;
  std::fprintf(stderr, "manifest_writer: %s\n", manifest.status().ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace tidemark::storage

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return tidemark::storage::Run(argv[1], std::atoll(argv[2]));
}
