// An AsyncCheckpointer on a file system of the test's choice, or with a clock of its own.

#ifndef TIDEMARK_TESTS_SNAPSHOT_CHECKPOINTER_ON_FILE_SYSTEM_H_
#define TIDEMARK_TESTS_SNAPSHOT_CHECKPOINTER_ON_FILE_SYSTEM_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "snapshot/process/machine.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "storage/store/store_layout.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

class CheckpointerOnFileSystem {
 public:
  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> Open(const Machine& machine, CheckpointerOptions options) {
    return AsyncCheckpointer::OpenOn(machine, std::move(options));
  }

  // As AsyncCheckpointer::Open, but for the clock, which several threads read at once.
  static absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> OpenWithClock(std::function<absl::Time()> now,
                                                                          CheckpointerOptions options) {
    options.directory = storage::FollowLinks(options.directory);
    Machine machine(storage::PosixFileSystemAt(storage::StoreLayout(options.directory).directory()));
    machine.now = std::move(now);
    return Open(machine, std::move(options));
  }
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_CHECKPOINTER_ON_FILE_SYSTEM_H_
