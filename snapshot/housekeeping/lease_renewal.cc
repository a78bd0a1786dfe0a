#include "snapshot/housekeeping/lease_renewal.h"

#include <string>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "snapshot/guarded.h"

namespace tidemark {

LeaseRenewal::LeaseRenewal(std::function<absl::Status()> renew, absl::Duration interval)
    : renew_(std::move(renew)), interval_(interval) {}

absl::StatusOr<std::unique_ptr<LeaseRenewal>> LeaseRenewal::Start(std::function<absl::Status()> renew,
                                                                  absl::Duration interval) {
  std::unique_ptr<LeaseRenewal> renewal(new LeaseRenewal(std::move(renew), interval));
  try {
    renewal->thread_ = std::thread([loop = renewal.get()] { loop->Loop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(fmt::format("start the thread that renews a lease: {}", error.what()));
  }
  return renewal;
}

LeaseRenewal::~LeaseRenewal() { Stop().IgnoreError(); }

absl::Status LeaseRenewal::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    stops_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  absl::MutexLock lock(&mutex_);
  return last_;
}

void LeaseRenewal::Loop() {
  absl::Status said;
  while (!absl::IsAborted(said)) {
    {
      absl::MutexLock lock(&mutex_);
      const auto stopped = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_; };
      if (stops_.Await(&mutex_, stopped, Deadline::After(interval_))) return;
    }
    said = Guarded("the renewal of a lease", renew_);
    absl::MutexLock lock(&mutex_);
    last_ = said;
  }
}

}  // namespace tidemark
