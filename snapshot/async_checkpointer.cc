#include "tidemark/async_checkpointer.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "snapshot/checkpointer_options.h"
#include "snapshot/persister.h"
#include "snapshot/restore.h"
#include "snapshot/serial_executor.h"
#include "snapshot/snapshot_stream.h"
#include "snapshot/stager.h"
#include "storage/io/file_system.h"
#include "storage/manifest/store.h"

namespace tidemark {
namespace {

void WarnOnStandardError(std::string_view line) {
  std::fprintf(stderr, "tidemark: %.*s\n", static_cast<int>(line.size()), line.data());
}

CheckpointerOptions WithDefaults(CheckpointerOptions options) {
  if (!options.on_warning) options.on_warning = WarnOnStandardError;
  if (!options.now) options.now = absl::Now;
  return options;
}

absl::Status Closed() { return absl::FailedPreconditionError("the checkpointer has been closed"); }

// The attempt is beyond use, as opposed to the disk under it.
bool IsDamage(const absl::Status& status) { return absl::IsDataLoss(status) || absl::IsNotFound(status); }

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Saves whose fate is not settled, or is bad and nobody has looked. Thread-safe.
class OpenSaves {
 public:
  void Add(int64_t step, Future committed) {
    absl::MutexLock lock(&mutex_);
    saves_.push_back({step, std::move(committed)});
  }

  bool IsInFlight(int64_t step) {
    absl::MutexLock lock(&mutex_);
    return std::any_of(saves_.begin(), saves_.end(),
                       [&](const OpenSave& save) { return save.step == step && !save.committed.ready(); });
  }

  // The first failure that nobody has looked at, which has been now.
  absl::Status TakeFailure() {
    absl::MutexLock lock(&mutex_);
    absl::Status failure;
    std::erase_if(saves_, [&](const OpenSave& save) {
      if (!failure.ok() || !save.committed.ready()) return false;
      if (!save.committed.observed()) failure = save.committed.Wait();
      return true;
    });
    return failure;
  }

 private:
  struct OpenSave {
    int64_t step;
    Future committed;
  };
  absl::Mutex mutex_;
  std::vector<OpenSave> saves_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

struct AsyncCheckpointer::Impl {
  Impl(storage::FileSystem& file_system, CheckpointerOptions given)
      : options(WithDefaults(std::move(given))),
        read_options(ReadOptions(options)),
        files(file_system),
        stager(options) {}

  absl::Status OpenStore() {
    auto opened =
        storage::Store::Open(files, {.directory = options.directory, .warn = options.on_warning, .read = read_options});
    if (!opened.ok()) return opened.status();
    store = *std::move(opened);
    // Says now, and not in the background of the first save, that io_uring was asked for and is not to be had.
    auto queue = files.NewIoQueue(read_options.io, read_options.io_depth);
    if (!queue.ok()) return queue.status();
    persister = std::make_unique<Persister>(files, *store, WriterOptions(options), options.on_warning);
    stream = std::make_unique<SnapshotStream>();
    stream->AddConsumer(persister.get());
    last_save = options.now();
    return absl::OkStatus();
  }

  absl::Status CheckSave(int64_t step, const SaveOptions& save) {
    if (step < 0) return absl::InvalidArgumentError(fmt::format("step {} is negative", step));
    if (absl::Status status = ValidateUserMetadata(save.user_metadata); !status.ok()) return status;
    if (absl::Status status = ValidateMetrics(save.metrics); !status.ok()) return status;
    if (save.overwrite) return absl::OkStatus();
    if (open_saves.IsInFlight(step)) return absl::AlreadyExistsError(fmt::format("step {} is being saved", step));
    absl::StatusOr<std::optional<storage::StepRecord>> record = store->manifest().Find(step);
    if (!record.ok()) return record.status();
    if (record->has_value() && (*record)->info.state == StepState::kCommitted) {
      return absl::AlreadyExistsError(
          fmt::format("step {} is committed; SaveOptions::overwrite would replace it", step));
    }
    return absl::OkStatus();
  }

  storage::StoreLayout const& layout() const { return store->layout(); }
  RestoreSource source() const { return {files, store->layout(), store->id(), read_options}; }

  // Restores from `record`, and marks it if it turns out damaged.
  absl::StatusOr<RestoreReport> TryRestore(const storage::StepRecord& record, State& state,
                                           const RestoreOptions& restore) {
    absl::StatusOr<RestoreReport> report = RestoreAttempt(source(), record, state, restore);
    if (report.ok() || !IsDamage(report.status())) return report;
    const StepState verdict = absl::IsNotFound(report.status()) ? StepState::kLost : StepState::kDamaged;
    options.on_warning(
        fmt::format("step {} is {}: {}", record.info.step, StepStateName(verdict), Text(report.status())));
    absl::Status marked = store->MarkStep(record.info.step, record.info.attempt, verdict, Text(report.status()));
    if (!marked.ok()) options.on_warning(fmt::format("that could not be recorded: {}", Text(marked)));
    return absl::DataLossError(Text(report.status()));
  }

  // Constant after Open.
  const CheckpointerOptions options;
  const storage::ShardReadOptions read_options;
  storage::FileSystem& files;

  // Owned by the trainer's thread.
  bool closed = false;
  absl::Time last_save;
  Future last_staged;
  Stager stager;

  // Thread-safe. Destroyed from the bottom up: whoever stages stops before the stream, the stream before its consumer,
  // that before the store.
  OpenSaves open_saves;
  std::unique_ptr<storage::Store> store;
  std::unique_ptr<Persister> persister;
  std::unique_ptr<SnapshotStream> stream;
  std::unique_ptr<SerialExecutor> staging_thread;  // made by the first overlapped save
};

AsyncCheckpointer::AsyncCheckpointer() = default;

AsyncCheckpointer::~AsyncCheckpointer() {
  if (impl_ == nullptr) return;
  if (absl::Status status = Close(); !status.ok()) impl_->options.on_warning(status.ToString());
}

absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> AsyncCheckpointer::Open(CheckpointerOptions options) {
  return OpenOn(storage::PosixFileSystem(), std::move(options));
}

absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> AsyncCheckpointer::OpenOn(storage::FileSystem& files,
                                                                             CheckpointerOptions options) {
  if (absl::Status status = ValidateOptions(options); !status.ok()) return status;
  std::unique_ptr<AsyncCheckpointer> checkpointer(new AsyncCheckpointer());
  auto impl = std::make_unique<Impl>(files, std::move(options));
  if (absl::Status status = impl->OpenStore(); !status.ok()) return status;
  checkpointer->impl_ = std::move(impl);
  return checkpointer;
}

bool AsyncCheckpointer::ShouldSave(int64_t step) const {
  const CheckpointerOptions& options = impl_->options;
  if (impl_->closed || step < 0) return false;
  const bool any_rule =
      options.save_interval_steps > 0 || !options.save_on_steps.empty() || options.save_interval_seconds > 0;
  const bool due =
      !any_rule || (options.save_interval_steps > 0 && step % options.save_interval_steps == 0) ||
      std::find(options.save_on_steps.begin(), options.save_on_steps.end(), step) != options.save_on_steps.end() ||
      (options.save_interval_seconds > 0 &&
       options.now() - impl_->last_save >= absl::Seconds(options.save_interval_seconds));
  return due && !absl::IsAlreadyExists(impl_->CheckSave(step, {}));
}

absl::StatusOr<SaveHandle> AsyncCheckpointer::Save(int64_t step, State& state, SaveOptions options) {
  const absl::Time start = absl::Now();
  if (impl_->closed) return Closed();
  // The trainer may not have waited for an overlapped save; its tensors are still being read.
  impl_->last_staged.Wait().IgnoreError();
  if (absl::Status failure = impl_->open_saves.TakeFailure(); !failure.ok()) {
    return absl::Status(
        failure.code(),
        fmt::format("step {} was not saved, because an earlier failure had not been seen: {}", step, Text(failure)));
  }
  if (absl::Status status = impl_->CheckSave(step, options); !status.ok()) return status;

  SaveHandle handle;
  handle.step_ = step;
  Promise committed;
  handle.committed_ = committed.future();
  auto begun = impl_->stager.Begin(step, state, options, impl_->options.now());
  if (!begun.ok()) {
    if (!absl::IsResourceExhausted(begun.status()) || impl_->options.when_full != WhenFull::kSkip)
      return begun.status();
    handle.skipped_ = true;
    Promise staged;
    handle.staged_ = staged.future();
    staged.Set(begun.status());
    committed.Set(begun.status());
    return handle;
  }
  impl_->last_save = impl_->options.now();
  std::shared_ptr<StagedSnapshot> snapshot = *std::move(begun);
  const bool overlapped = options.staging.value_or(impl_->options.staging) == Staging::kOverlapped;
  if (!overlapped) {
    if (absl::Status status = impl_->stager.CopyTensors(state, *snapshot); !status.ok()) return status;
    snapshot->set_blocked(absl::Now() - start);
    impl_->open_saves.Add(step, handle.committed_);
    impl_->persister->Expect(snapshot.get(), std::move(committed));
    impl_->stream->Publish(std::move(snapshot));
    return handle;
  }
  if (impl_->staging_thread == nullptr) impl_->staging_thread = std::make_unique<SerialExecutor>();
  Promise staged;
  handle.staged_ = impl_->last_staged = staged.future();
  impl_->open_saves.Add(step, handle.committed_);
  snapshot->set_blocked(absl::Now() - start);
  // The executor takes copyable tasks only; the promises move on from here once.
  struct Work {
    std::shared_ptr<StagedSnapshot> snapshot;
    Promise staged;
    Promise committed;
  };
  auto work = std::make_shared<Work>(Work{std::move(snapshot), std::move(staged), std::move(committed)});
  impl_->staging_thread->Add([impl = impl_.get(), &state, work] {
    const absl::Status status = impl->stager.CopyTensors(state, *work->snapshot);
    if (status.ok()) {
      impl->persister->Expect(work->snapshot.get(), std::move(work->committed));
      impl->stream->Publish(std::move(work->snapshot));
    } else {
      work->committed.Set(status);
    }
    work->staged.Set(status);
  });
  return handle;
}

absl::Status AsyncCheckpointer::WaitUntilStaged() {
  if (impl_->closed) return Closed();
  return impl_->last_staged.Wait();
}

absl::Status AsyncCheckpointer::WaitUntilCommitted() {
  if (impl_->closed) return Closed();
  impl_->last_staged.Wait().IgnoreError();
  impl_->stream->Drain();
  return impl_->open_saves.TakeFailure();
}

absl::Status AsyncCheckpointer::CheckForErrors() { return impl_->open_saves.TakeFailure(); }

absl::StatusOr<RestoreReport> AsyncCheckpointer::RestoreLatest(State& state, const RestoreOptions& options) {
  if (impl_->closed) return Closed();
  impl_->last_staged.Wait().IgnoreError();
  impl_->stream->Drain();
  std::vector<std::pair<int64_t, std::string>> passed_over;
  bool damage_seen = false;
  for (int64_t at_most = std::numeric_limits<int64_t>::max(); at_most >= 0;) {
    absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().FindAtOrBelow(at_most);
    if (!record.ok()) return record.status();
    if (!record->has_value()) break;
    const StepInfo& info = (*record)->info;
    at_most = info.step - 1;
    if (info.state != StepState::kCommitted) {
      damage_seen = damage_seen || info.state != StepState::kFailed;
      passed_over.emplace_back(info.step, fmt::format("{}: {}", StepStateName(info.state), info.reason));
      continue;
    }
    if (options.accept && !options.accept(info)) {
      passed_over.emplace_back(info.step, "not accepted by RestoreOptions::accept");
      continue;
    }
    absl::StatusOr<RestoreReport> report = impl_->TryRestore(**record, state, options);
    if (report.ok()) {
      report->passed_over = std::move(passed_over);
      return report;
    }
    // A device error concerns this step, for all we know; a state that does not fit concerns them all.
    if (!absl::IsDataLoss(report.status()) && !absl::IsInternal(report.status())) return report.status();
    damage_seen = true;
    passed_over.emplace_back(info.step, Text(report.status()));
  }
  std::string reasons;
  for (const auto& [step, reason] : passed_over) reasons += fmt::format("\n  step {}: {}", step, reason);
  if (damage_seen)
    return absl::DataLossError(fmt::format("no step of {} can be restored:{}", impl_->layout().directory(), reasons));
  return absl::NotFoundError(fmt::format("no step to restore in {}{}", impl_->layout().directory(), reasons));
}

absl::StatusOr<RestoreReport> AsyncCheckpointer::Restore(int64_t step, State& state, const RestoreOptions& options) {
  if (impl_->closed) return Closed();
  impl_->last_staged.Wait().IgnoreError();
  impl_->stream->Drain();
  absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().Find(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.state == StepState::kFailed) {
    return absl::NotFoundError(fmt::format("step {} is not committed in {}", step, impl_->layout().directory()));
  }
  if ((*record)->info.state != StepState::kCommitted) {
    return absl::DataLossError(
        fmt::format("step {} is {}: {}", step, StepStateName((*record)->info.state), (*record)->info.reason));
  }
  if (options.accept && !options.accept((*record)->info)) {
    return absl::NotFoundError(fmt::format("step {} is not accepted by RestoreOptions::accept", step));
  }
  return impl_->TryRestore(**record, state, options);
}

absl::StatusOr<std::vector<StepInfo>> AsyncCheckpointer::Steps() const {
  if (impl_->closed) return Closed();
  std::vector<StepInfo> steps;
  absl::Status status = impl_->store->manifest().ForEach([&](storage::StepRecord record) {
    steps.push_back(std::move(record.info));
    return true;
  });
  if (!status.ok()) return status;
  return steps;
}

absl::Status AsyncCheckpointer::Close() {
  if (impl_->closed) return absl::OkStatus();
  impl_->last_staged.Wait().IgnoreError();
  impl_->stream->Drain();
  impl_->closed = true;
  impl_->staging_thread.reset();
  impl_->stream.reset();
  impl_->persister.reset();
  impl_->store.reset();
  return impl_->open_saves.TakeFailure();
}

}  // namespace tidemark
