#include "snapshot/housekeeping/scrubber.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "snapshot/deadline.h"
#include "snapshot/stopwatch.h"
#include "storage/io/exception_status.h"
#include "storage/io/thread_priority.h"

namespace tidemark {
namespace {

// Read between two pauses, so that the thread wakes up a few times a second and not for every small chunk.
constexpr uint64_t kBytesAtATime = 1 << 20;

}  // namespace

struct Scrubber::Work {
  Work(ScrubberHost given_host, ScrubberOptions given_options)
      : host(std::move(given_host)), options(given_options), scrub(*host.files, host.steps_directory) {}

  void Loop();
  // Blocks until there may be something to read. False: the scrubber stops.
  bool AwaitSave();
  // Blocks for that time at most. True: the scrubber stops.
  bool StopsWithin(absl::Duration time);
  uint64_t SavesEnded();
  // Calls functions of the host. False: the scrubber stops, and no function may be called.
  bool InHost(const std::function<void()>& call);
  // Returns how long to wait after it.
  absl::Duration ReadOnce();

  const ScrubberHost host;
  const ScrubberOptions options;

  // Owned by the scrubber's thread.
  storage::ChunkScrub scrub;
  Stopwatch since_pass;
  uint64_t rests_until = 0;            // there is nothing to read until more saves than these have ended
  std::optional<uint64_t> pass_after;  // of the pass that is under way: how many saves had ended when it began

  absl::Mutex mutex;
  MonotonicCondVar changed;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool in_host ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  uint64_t saves_ended ABSL_GUARDED_BY(mutex) = 0;
  std::thread thread ABSL_GUARDED_BY(mutex);  // taken by the Stop that joins it
};

bool Scrubber::Work::AwaitSave() {
  absl::MutexLock lock(&mutex);
  const auto wakes = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return stopping || saves_ended > rests_until; };
  changed.Await(&mutex, wakes, Deadline::Never());
  return !stopping;
}

bool Scrubber::Work::StopsWithin(absl::Duration time) {
  absl::MutexLock lock(&mutex);
  const auto is_stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return stopping; };
  return changed.Await(&mutex, is_stopping, Deadline::After(time));
}

uint64_t Scrubber::Work::SavesEnded() {
  absl::MutexLock lock(&mutex);
  return saves_ended;
}

bool Scrubber::Work::InHost(const std::function<void()>& call) {
  {
    absl::MutexLock lock(&mutex);
    if (stopping) return false;
    in_host = true;
  }
  std::exception_ptr thrown;
  try {
    call();
  } catch (...) {
    thrown = std::current_exception();
  }
  {
    absl::MutexLock lock(&mutex);
    in_host = false;
    changed.NotifyAll();
    if (thrown == nullptr) return !stopping;
  }
  std::rethrow_exception(thrown);
}

void Scrubber::Work::Loop() {
  // The kernel may refuse. The scrub then runs with the trainer's priority.
  storage::BestEffort([this] { storage::LowerThreadPriority(options.nice, /*idle_io=*/true).IgnoreError(); });
  while (AwaitSave()) {
    if (!pass_after && StopsWithin(options.pass_interval - since_pass.elapsed())) break;
    absl::Duration pause = options.retry_interval;  // after an exception, which memory that is short throws
    storage::BestEffort([&] { pause = ReadOnce(); });
    if (StopsWithin(pause)) break;
  }
  absl::MutexLock lock(&mutex);
  ended = true;
  changed.NotifyAll();
}

absl::Duration Scrubber::Work::ReadOnce() {
  // Before the host is asked: a save that is being written then has yet to be counted.
  const uint64_t saves = SavesEnded();
  if (!pass_after) {
    pass_after = saves;
    since_pass = Stopwatch();
  }
  bool writing = false;
  std::shared_ptr<const storage::ReusableShard> shard;
  InHost([&] {
    writing = host.is_writing();
    if (!writing) shard = host.reusable();
  });
  if (shard == nullptr) {
    rests_until = saves;
    return absl::ZeroDuration();
  }
  const storage::ChunkScrub::Result read = scrub.Read(*shard, kBytesAtATime, [&] {
    const bool goes_on = InHost([&] { writing = host.is_writing(); });
    return writing || !goes_on;
  });
  if (read.damage) {
    InHost([&] {
      // A save may be removing the file because the step after it does not need it, or may have done so. If the chunk
      // is still needed after that save, it is read again.
      if (!host.is_writing() && host.reusable() == shard) host.on_damage(*read.damage);
    });
  }
  if (writing || read.damage) rests_until = saves;
  if (read.pass_ended) {
    rests_until = *pass_after;
    pass_after.reset();
  }
  const absl::Duration pause =
      absl::Seconds(static_cast<double>(read.bytes_read) / static_cast<double>(options.bytes_per_second_max));
  return read.skipped ? std::max(pause, options.retry_interval) : pause;
}

absl::StatusOr<std::unique_ptr<Scrubber>> Scrubber::Start(ScrubberHost host, ScrubberOptions options) {
  const auto work = std::make_shared<Work>(std::move(host), options);
  std::unique_ptr<Scrubber> scrubber(new Scrubber(work));
  try {
    absl::MutexLock lock(&work->mutex);
    work->thread = std::thread([work] { work->Loop(); });
    scrubber->thread_id_ = work->thread.get_id();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(fmt::format("start a thread: {}", error.what()));
  }
  return scrubber;
}

Scrubber::~Scrubber() { Stop(); }

bool Scrubber::OnOwnThread() const { return std::this_thread::get_id() == thread_id_; }

void Scrubber::SaveEnded() {
  absl::MutexLock lock(&work_->mutex);
  ++work_->saves_ended;
  work_->changed.NotifyAll();
}

void Scrubber::Stop() {
  std::thread thread;
  bool ended = false;
  {
    absl::MutexLock lock(&work_->mutex);
    work_->stopping = true;
    work_->changed.NotifyAll();
    const auto out_of_host = [this]() ABSL_SHARED_LOCKS_REQUIRED(work_->mutex) { return !work_->in_host; };
    work_->changed.Await(&work_->mutex, out_of_host, Deadline::Never());
    if (!work_->thread.joinable()) return;
    const auto has_ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(work_->mutex) { return work_->ended; };
    ended = work_->changed.Await(&work_->mutex, has_ended, Deadline::After(kStopTimeout));
    thread = std::move(work_->thread);
  }
  if (!thread.joinable()) return;  // another Stop has taken it
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
}

}  // namespace tidemark
