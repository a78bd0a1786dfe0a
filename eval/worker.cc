#include "tidemark/worker.h"

#include <chrono>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "eval/store_follower.h"
#include "snapshot/guarded.h"
#include "snapshot/process/termination_signal.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"

namespace tidemark {

absl::StatusOr<WorkerReport> FollowStore(const WorkerOptions& options, const EvaluatorFunction& function) {
  return Guarded("FollowStore", [&]() -> absl::StatusOr<WorkerReport> {
    if (absl::Status status = ValidateWorkerOptions(options); !status.ok()) return status;
    if (function == nullptr) return absl::InvalidArgumentError("FollowStore was given no function");
    std::vector<int> signals;
    if (options.stop_on_signal) signals = {SIGTERM, SIGINT};
    absl::StatusOr<std::unique_ptr<TerminationSignal>> asked = TerminationSignal::Install(std::move(signals));
    if (!asked.ok()) return asked.status();
    // Links are resolved anew until the store exists. The directory that a relative path starts from must not change
    // meanwhile.
    const std::string directory = storage::AbsolutePath(options.directory);
    StoreFollower follower(
        options, function,
        {.locate = [&] { return storage::FollowLinks(directory); },
         .hold = [](const std::string& path) { return storage::PosixFileSystemAt(path); },
         .now =
             [] { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); },
         .signalled = [&] { return (*asked)->received(); },
         .wait = [&](absl::Duration duration) { (*asked)->WaitFor(duration); }});
    return follower.Run();
  });
}

}  // namespace tidemark
