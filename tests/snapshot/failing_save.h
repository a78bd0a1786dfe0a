// For tests in which a save fails.

#ifndef TIDEMARK_TESTS_SNAPSHOT_FAILING_SAVE_H_
#define TIDEMARK_TESTS_SNAPSHOT_FAILING_SAVE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "tests/storage/io/failing_file_system.h"

namespace tidemark {

// The next call of that name for an attempt fails. It may not be just any next call: the housekeeper's thread makes
// files and folders in the journal at any time.
inline void FailSave(storage::FailingFileSystem& files, std::string operation, absl::Status status) {
  files.SetRule([operation = std::move(operation), status = std::move(status),
                 met = false](const storage::FailingFileSystem::Call& call) mutable {
    if (met || call.operation != operation || call.path.find("/steps/") == std::string::npos) return absl::OkStatus();
    met = true;
    return status;
  });
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_FAILING_SAVE_H_
