#include "tests/crash/failing_disk.h"

namespace tidemark::crash {

using storage::FailingFileSystem;

void FailingDisk::FailOnce(const std::string& operation, const std::string& suffix, const absl::Status& error) {
  files_.SetRule([=, this, failed = false](const FailingFileSystem::Call& call) mutable {
    if (failed || call.operation != operation || !call.path.ends_with(suffix)) return absl::OkStatus();
    failed = true;
    if (operation == "SyncData" || operation == "SyncDirectory") disk_.FailSync(call.path);
    return error;
  });
}

void FailingDisk::Hold(const std::string& operation, const std::string& suffix, const absl::Notification& until) {
  files_.SetGate([=, &until](const std::string& called, const std::string& path) {
    if (called == operation && path.ends_with(suffix)) until.WaitForNotification();
  });
}

}  // namespace tidemark::crash
