#include "tidemark/future.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/deadline.h"
#include "snapshot/guarded.h"
#include "snapshot/process/owner_process.h"

namespace tidemark {

struct Future::Shared {
  const OwnerProcess owner{};
  // Set once, with the mutex held. Once `has_result`, it is constant and read without the mutex: in a forked child a
  // missing thread may hold the mutex.
  std::optional<absl::Status> result;
  std::atomic<bool> has_result = false;
  std::atomic<bool> has_callback = false;
  std::atomic<bool> observed = false;
  std::atomic<bool> awaited = false;
  absl::Mutex mutex;
  std::function<void(const absl::Status&)> callback ABSL_GUARDED_BY(mutex);
  std::vector<std::function<void(const absl::Status&)>> watchers ABSL_GUARDED_BY(mutex);
  MonotonicCondVar resolved;  // signalled when `has_result` is set
};

namespace {

// The result of a promise that is destroyed before it is set. Made by the first promise: later there may be no memory
// for it. Never destroyed, because threads may outlive static objects.
const absl::Status& Abandoned() {
  static const auto& abandoned =
      *new absl::Status(absl::CancelledError("the work was abandoned before it had a result"));
  return abandoned;
}

[[noreturn]] void Misused(const char* what) {
  std::fprintf(stderr, "tidemark: %s\n", what);
  std::abort();
}

}  // namespace

Future::Future() : shared_(std::make_shared<Shared>()) {
  shared_->result = absl::OkStatus();
  shared_->has_result = true;
}

Future::Future(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

bool Future::ready() const { return shared_->has_result; }

absl::Status Future::Peek() const { return ready() ? *shared_->result : absl::OkStatus(); }

absl::Status Future::Wait() const { return WaitUntil(absl::InfiniteFuture()); }

absl::Status Future::Await(absl::Time deadline) const {
  const Deadline by = Deadline::At(deadline);
  if (shared_->has_result) return absl::OkStatus();
  if (absl::Status status = shared_->owner.Check(); !status.ok()) return status;
  shared_->awaited = true;
  absl::MutexLock lock(&shared_->mutex);
  const auto resolved = [this] { return shared_->has_result.load(); };
  if (shared_->resolved.Await(&shared_->mutex, resolved, by)) return absl::OkStatus();
  return absl::DeadlineExceededError("the result was not ready by the deadline");
}

absl::Status Future::WaitUntil(absl::Time deadline) const {
  if (absl::Status status = Await(deadline); !status.ok()) return status;
  shared_->observed = true;
  return *shared_->result;
}

void Future::OnReady(std::function<void(const absl::Status&)> callback) const {
  if (shared_->has_callback.exchange(true)) Misused("Future::OnReady was called twice for one result");
  const std::shared_ptr<Shared> shared = shared_;  // the callback may destroy this future
  if (!shared->has_result) {
    if (absl::Status status = shared->owner.Check(); !status.ok()) return callback(status);
    absl::MutexLock lock(&shared->mutex);
    if (!shared->has_result) {
      shared->callback = std::move(callback);
      return;
    }
  }
  shared->observed = true;
  callback(*shared->result);
}

bool Future::observed() const { return shared_->observed; }

Promise::Promise() : shared_(std::make_shared<Future::Shared>()) { Abandoned(); }

Promise::~Promise() {
  if (shared_ != nullptr && !shared_->has_result) Set(Abandoned());
}

Promise::Promise(Promise&&) noexcept = default;

Promise& Promise::operator=(Promise&& other) noexcept {
  std::swap(shared_, other.shared_);
  return *this;
}

Future Promise::future() const { return Future(shared_); }

bool Promise::awaited() const { return shared_->awaited; }

void Promise::Watch(std::function<void(const absl::Status&)> watcher) const {
  {
    absl::MutexLock lock(&shared_->mutex);
    if (!shared_->has_result) {
      shared_->watchers.push_back(std::move(watcher));
      return;
    }
  }
  watcher(*shared_->result);
}

void Promise::Set(absl::Status status) {
  const std::shared_ptr<Future::Shared> shared =
      shared_;  // a caller that sees the result may destroy the promise at once
  std::function<void(const absl::Status&)> callback;
  std::vector<std::function<void(const absl::Status&)>> watchers;
  {
    absl::MutexLock lock(&shared->mutex);
    if (shared->has_result) Misused("Promise::Set was called twice");
    watchers.swap(shared->watchers);
    callback = std::move(shared->callback);
    shared->callback = nullptr;
    if (callback) shared->observed = true;
    shared->result = status;
    shared->has_result = true;
    shared->resolved.NotifyAll();
  }
  for (const auto& watcher : watchers) storage::BestEffort([&] { watcher(status); });
  if (!callback) return;
  // The thread is one of the library's, and the result has arrived whatever becomes of whoever hears of it.
  const absl::Status called = Guarded("a callback of Future::OnReady", [&] { callback(status); });
  const absl::string_view problem = called.message();
  if (!called.ok()) std::fprintf(stderr, "tidemark: %.*s\n", static_cast<int>(problem.size()), problem.data());
}

}  // namespace tidemark
