// A disk on which chosen operations fail, and a sync that fails is final, as it is on Linux.

#ifndef TIDEMARK_TESTS_CRASH_FAILING_DISK_H_
#define TIDEMARK_TESTS_CRASH_FAILING_DISK_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"

namespace tidemark::crash {

// Thread-safe. `disk` is not owned; outlives what was opened on files().
class FailingDisk {
 public:
  explicit FailingDisk(storage::SimulatedDisk& disk) : disk_(disk), files_(disk) {}

  storage::FileSystem& files() { return files_; }

  // The next call of that name (FailingFileSystem has them) on a path that ends so fails, and is not done. What a sync
  // should have covered may be lost from then on. Takes the place of what was asked for before.
  void FailOnce(const std::string& operation, const std::string& suffix, const absl::Status& error);
  // The same of a path that has `part` in it; and all calls from now on.
  void FailOnceIn(const std::string& operation, const std::string& part, const absl::Status& error);
  void FailIn(const std::string& operation, const std::string& part, const absl::Status& error);
  // Nothing can be made or become longer: ENOSPC. What is there can be written over, renamed and removed.
  void Fill();
  // Nothing fails any more.
  void Heal() { files_.Reset(); }

 private:
  using Match = std::function<bool(const storage::FailingFileSystem::Call&)>;
  void Fail(Match matches, bool once, const absl::Status& error);

  storage::SimulatedDisk& disk_;
  storage::FailingFileSystem files_;
};

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_FAILING_DISK_H_
