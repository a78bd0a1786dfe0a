#include "snapshot/saves/open_saves.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace tidemark {
namespace {

// Failed saves that are kept until the trainer reads them. A trainer that never does must not run out of memory.
constexpr int kUnreadMax = 10;

}  // namespace

void OpenSaves::Reserve() {
  absl::MutexLock lock(&mutex_);
  if (saves_.size() == saves_.capacity()) saves_.reserve(2 * saves_.size() + 1);
}

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

bool OpenSaves::AnyInFlight() const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(saves_.begin(), saves_.end(),
                     [](const OpenSave& save) { return save.persist && !save.committed.ready(); });
}

std::optional<Future> OpenSaves::CommittedOf(int64_t step) const {
  absl::MutexLock lock(&mutex_);
  const auto found = std::find_if(saves_.rbegin(), saves_.rend(),
                                  [&](const OpenSave& save) { return save.persist && save.step == step; });
  if (found == saves_.rend() || found->committed.ready()) return std::nullopt;
  return found->committed;
}

void OpenSaves::AwaitAll() const {
  std::vector<OpenSave> saves;
  {
    absl::MutexLock lock(&mutex_);
    saves = saves_;
  }
  for (const OpenSave& save : saves) {
    if (!save.persist) continue;
    save.staged.Await(absl::InfiniteFuture()).IgnoreError();
    save.committed.Await(absl::InfiniteFuture()).IgnoreError();
  }
}

bool OpenSaves::IsDone(const OpenSave& save) {
  if (!save.staged.ready() || !save.committed.ready()) return false;
  const bool staging_was_seen = save.staged.observed() && !save.staged.Peek().ok();
  return save.committed.Peek().ok() || save.committed.observed() || staging_was_seen;
}

absl::Status OpenSaves::TakeFailure() {
  absl::MutexLock lock(&mutex_);
  std::erase_if(saves_, IsDone);
  const auto failed = std::find_if(saves_.begin(), saves_.end(), [](const OpenSave& save) {
    return save.staged.ready() && !save.committed.Peek().ok();
  });
  if (failed == saves_.end()) {
    const int64_t others = std::exchange(others_, 0);
    const absl::Status last = std::exchange(last_other_, absl::OkStatus());
    if (others <= 1) return last;
    return absl::Status(last.code(),
                        fmt::format("{} more saves failed; the last one: {}", others, std::string(last.message())));
  }
  const absl::Status failure = failed->committed.Wait();
  saves_.erase(failed);
  return failure;
}

std::optional<Future> OpenSaves::FirstUnseenFailure(
    const std::function<void(int64_t step, const absl::Status& failure)>& tell) {
  std::optional<Future> first;
  std::vector<OpenSave> news;
  int unread = 0;
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(saves_, [&](OpenSave& save) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (IsDone(save)) return true;
      if (!save.staged.ready() || save.committed.Peek().ok()) return false;
      if (!std::exchange(save.told, true)) news.push_back(save);
      if (!first) first = save.committed;
      if (++unread <= kUnreadMax) return false;
      ++others_;
      last_other_ = save.committed.Peek();
      return true;
    });
  }
  for (const OpenSave& save : news) tell(save.step, save.committed.Peek());
  return first;
}

}  // namespace tidemark
