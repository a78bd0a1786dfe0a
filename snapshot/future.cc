#include "tidemark/future.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/deadline.h"

namespace tidemark {

struct Future::Shared {
  absl::Mutex mutex;
  std::optional<absl::Status> result ABSL_GUARDED_BY(mutex);
  std::function<void(const absl::Status&)> callback ABSL_GUARDED_BY(mutex);
  std::vector<std::function<void(const absl::Status&)>> watchers ABSL_GUARDED_BY(mutex);
  bool has_callback ABSL_GUARDED_BY(mutex) = false;
  bool observed ABSL_GUARDED_BY(mutex) = false;
  MonotonicCondVar resolved;
};

namespace {

[[noreturn]] void Misused(const char* what) {
  std::fprintf(stderr, "tidemark: %s\n", what);
  std::abort();
}

}  // namespace

Future::Future() : shared_(std::make_shared<Shared>()) {
  absl::MutexLock lock(&shared_->mutex);
  shared_->result = absl::OkStatus();
}

Future::Future(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

bool Future::ready() const {
  absl::MutexLock lock(&shared_->mutex);
  return shared_->result.has_value();
}

absl::Status Future::Wait() const { return WaitUntil(absl::InfiniteFuture()); }

absl::Status Future::WaitUntil(absl::Time deadline) const {
  const Deadline by = Deadline::At(deadline);
  absl::MutexLock lock(&shared_->mutex);
  const auto resolved = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_->mutex) { return shared_->result.has_value(); };
  if (!shared_->resolved.Await(&shared_->mutex, resolved, by)) {
    return absl::DeadlineExceededError("the result was not there by the deadline");
  }
  shared_->observed = true;
  return *shared_->result;
}

void Future::OnReady(std::function<void(const absl::Status&)> callback) const {
  std::optional<absl::Status> result;
  {
    absl::MutexLock lock(&shared_->mutex);
    if (shared_->has_callback) Misused("Future::OnReady was called twice for one result");
    shared_->has_callback = true;
    if (!shared_->result.has_value()) {
      shared_->callback = std::move(callback);
      return;
    }
    shared_->observed = true;
    result = shared_->result;
  }
  callback(*result);
}

bool Future::observed() const {
  absl::MutexLock lock(&shared_->mutex);
  return shared_->observed;
}

Promise::Promise() : shared_(std::make_shared<Future::Shared>()) {}

Promise::~Promise() {
  if (shared_ == nullptr) return;
  bool set;
  {
    absl::MutexLock lock(&shared_->mutex);
    set = shared_->result.has_value();
  }
  if (!set) Set(absl::CancelledError("the work was abandoned before it had a result"));
}

Promise::Promise(Promise&&) noexcept = default;

Promise& Promise::operator=(Promise&& other) noexcept {
  std::swap(shared_, other.shared_);
  return *this;
}

Future Promise::future() const { return Future(shared_); }

void Promise::Watch(std::function<void(const absl::Status&)> watcher) const {
  std::optional<absl::Status> result;
  {
    absl::MutexLock lock(&shared_->mutex);
    if (!shared_->result.has_value()) {
      shared_->watchers.push_back(std::move(watcher));
      return;
    }
    result = shared_->result;
  }
  watcher(*result);
}

void Promise::Set(absl::Status status) {
  std::function<void(const absl::Status&)> callback;
  std::vector<std::function<void(const absl::Status&)>> watchers;
  {
    absl::MutexLock lock(&shared_->mutex);
    if (shared_->result.has_value()) Misused("Promise::Set was called twice");
    shared_->result = status;
    watchers.swap(shared_->watchers);
    callback = std::move(shared_->callback);
    shared_->callback = nullptr;
    if (callback) shared_->observed = true;
    shared_->resolved.NotifyAll();
  }
  for (const auto& watcher : watchers) watcher(status);
  if (!callback) return;
  // The thread is one of the library's, and the result has arrived whatever becomes of whoever hears of it.
  try {
    callback(status);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tidemark: a callback of Future::OnReady threw: %s\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "tidemark: a callback of Future::OnReady threw something that is no std::exception\n");
  }
}

}  // namespace tidemark
