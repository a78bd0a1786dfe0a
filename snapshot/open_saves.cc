#include "snapshot/open_saves.h"

#include <algorithm>
#include <utility>

namespace tidemark {
namespace {

// The failure of a save that is over, unless somebody has been given it; looks at it on the way.
absl::Status UnseenFailure(const Future& staged, const Future& committed) {
  if (committed.observed()) return absl::OkStatus();
  const bool staged_was_seen = staged.observed();
  const absl::Status failure = committed.Wait();
  return staged_was_seen && !staged.Wait().ok() ? absl::OkStatus() : failure;
}

}  // namespace

void OpenSaves::Add(int64_t step, Future staged, Future committed, bool persist) {
  absl::MutexLock lock(&mutex_);
  saves_.push_back({step, std::move(staged), std::move(committed), persist});
}

bool OpenSaves::IsInFlight(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(saves_.begin(), saves_.end(), [&](const OpenSave& save) {
    return save.persist && save.step == step && !save.committed.ready();
  });
}

std::optional<Future> OpenSaves::CommittedOf(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  const auto found = std::find_if(saves_.rbegin(), saves_.rend(),
                                  [&](const OpenSave& save) { return save.persist && save.step == step; });
  if (found == saves_.rend() || found->committed.ready()) return std::nullopt;
  return found->committed;
}

absl::Status OpenSaves::TakeFailure() {
  absl::MutexLock lock(&mutex_);
  absl::Status failure;
  std::erase_if(saves_, [&](const OpenSave& save) {
    if (!failure.ok() || !save.staged.ready() || !save.committed.ready()) return false;
    failure = UnseenFailure(save.staged, save.committed);
    return true;
  });
  return failure;
}

}  // namespace tidemark
