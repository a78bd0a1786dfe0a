// An AsyncCheckpointer on a file system of the test's choice.

#ifndef TIDEMARK_TESTS_SNAPSHOT_CHECKPOINTER_ON_FILE_SYSTEM_H_
#define TIDEMARK_TESTS_SNAPSHOT_CHECKPOINTER_ON_FILE_SYSTEM_H_

#include <memory>
#include <utility>

#include "storage/io/file_system.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

class CheckpointerOnFileSystem {
 public:
  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> Open(storage::FileSystem& files,
                                                                 CheckpointerOptions options) {
    return AsyncCheckpointer::OpenOn(files, std::move(options));
  }
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_CHECKPOINTER_ON_FILE_SYSTEM_H_
