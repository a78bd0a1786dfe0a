// The stores that are kept in golden/: that of the first format, store-1, and store-2. golden/README.md lists their
// contents.

#ifndef TIDEMARK_TESTS_FORMAT_GOLDEN_STORE_H_
#define TIDEMARK_TESTS_FORMAT_GOLDEN_STORE_H_

#include <string>
#include <string_view>

#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"
#include "tests/storage/io/file_tree.h"

namespace tidemark::storage {

inline FileTree GoldenStore(std::string_view name = "store-1") {
  return ReadTree(PosixFileSystem(), TIDEMARK_SOURCE_DIR "/tests/format/golden/" + std::string(name));
}

// A copy of it, in a directory that is not there yet.
inline void MakeGoldenStore(FileSystem& files, const std::string& directory) {
  WriteTree(files, directory, GoldenStore());
}

// Of the attempts in its steps/.
inline StepFolder GoldenFolder(int64_t step) {
  for (const std::string& path : GoldenStore().directories) {
    const auto folder = ParseStepFolderName(path.substr(path.rfind('/') + 1));
    if (folder && folder->step == step) return *folder;
  }
  ADD_FAILURE() << "the golden store has no attempt at step " << step;
  return {};
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_FORMAT_GOLDEN_STORE_H_
