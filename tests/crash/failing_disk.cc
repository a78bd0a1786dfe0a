#include "tests/crash/failing_disk.h"

#include <utility>

namespace tidemark::crash {

using storage::FailingFileSystem;

void FailingDisk::Fail(Match matches, bool once, const absl::Status& error) {
  files_.SetRule([=, this, failed = false](const FailingFileSystem::Call& call) mutable {
    if ((once && failed) || !matches(call)) return absl::OkStatus();
    failed = true;
    if (call.operation == "SyncData" || call.operation == "SyncDirectory") disk_.FailSync(call.path);
    return error;
  });
}

void FailingDisk::FailOnce(const std::string& operation, const std::string& suffix, const absl::Status& error) {
  Fail([=](const FailingFileSystem::Call& call) { return call.operation == operation && call.path.ends_with(suffix); },
       /*once=*/true, error);
}

void FailingDisk::FailOnceIn(const std::string& operation, const std::string& part, const absl::Status& error) {
  Fail(
      [=](const FailingFileSystem::Call& call) {
        return call.operation == operation && call.path.find(part) != std::string::npos;
      },
      /*once=*/true, error);
}

void FailingDisk::FailIn(const std::string& operation, const std::string& part, const absl::Status& error) {
  Fail(
      [=](const FailingFileSystem::Call& call) {
        return call.operation == operation && call.path.find(part) != std::string::npos;
      },
      /*once=*/false, error);
}

void FailingDisk::Fill() {
  Fail(
      [this](const FailingFileSystem::Call& call) {
        // A spare file of a journal is written over.
        if (call.operation == "WriteAt") return call.path.find("/spare-") == std::string::npos;
        const bool makes =
            call.operation == "Create" || call.operation == "CreateReadable" || call.operation == "CreateDirectory";
        return call.operation == "QueueWrite" || (makes && !disk_.TypeOf(call.path).ok());
      },
      /*once=*/false, absl::ResourceExhaustedError("No space left on device (ENOSPC)"));
}

}  // namespace tidemark::crash
