#include "tidemark/async_checkpointer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/checkpointer_options.h"
#include "snapshot/open_saves.h"
#include "snapshot/persister.h"
#include "snapshot/restore.h"
#include "snapshot/serial_executor.h"
#include "snapshot/snapshot_stream.h"
#include "snapshot/stager.h"
#include "storage/io/file_system.h"
#include "storage/manifest/attempt_reader.h"
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

Future ResolvedWith(absl::Status status) {
  Promise promise;
  Future future = promise.future();
  promise.Set(std::move(status));
  return future;
}

std::string StagingName(Staging staging) {
  switch (staging) {
    case Staging::kBlocking:
      return "blocking";
    case Staging::kOverlapped:
      return "overlapped";
    case Staging::kOnDevice:
      return "on_device";
  }
  return "";
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

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
    persister = std::make_unique<Persister>(files, *store, WriterOptions(options), options.reuse, options.on_warning);
    stream = std::make_unique<SnapshotStream>();
    if (absl::Status status = stream->AddConsumer(persister.get()); !status.ok()) return status;
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

  const storage::StoreLayout& layout() const { return store->layout(); }
  RestoreSource source() const { return {files, store->layout(), store->id(), read_options}; }

  // Restores from `record`; a device error is given a second chance, and damage is recorded.
  RestoreResult TryRestore(const storage::StepRecord& record, State& state, const RestoreOptions& restore) {
    RestoreResult result = RestoreAttempt(source(), record, state, restore);
    if (result.cause == RestoreResult::Cause::kDevice && absl::IsInternal(result.status)) {
      options.on_warning(fmt::format("step {} is read once more after: {}", record.info.step, Text(result.status)));
      result = RestoreAttempt(source(), record, state, restore);
    }
    if (result.cause == RestoreResult::Cause::kNone || result.cause == RestoreResult::Cause::kState) return result;
    persister->ForgetCommitted();
    if (result.cause == RestoreResult::Cause::kDevice) return result;
    const StepState verdict = absl::IsNotFound(result.status) ? StepState::kLost : StepState::kDamaged;
    options.on_warning(fmt::format("step {} is {}: {}", record.info.step, StepStateName(verdict), Text(result.status)));
    Mark(record, verdict, Text(result.status));
    result.status = absl::DataLossError(Text(result.status));
    return result;
  }

  void Mark(const storage::StepRecord& record, StepState state, std::string_view reason) {
    const absl::Status marked = store->MarkStep(record.info.step, record.info.attempt, state, reason);
    if (!marked.ok()) options.on_warning(fmt::format("that could not be recorded: {}", Text(marked)));
  }

  // A step that was found damaged or lost, and is asked for by name: perhaps it was a bad cable, or its disk is back.
  // Every byte must verify before the mark is taken back.
  absl::Status Reexamine(storage::StepRecord& record) {
    absl::StatusOr<storage::Attempt> attempt = OpenRecorded(source(), record);
    absl::Status sound = attempt.status();
    if (sound.ok()) {
      const auto id = storage::FromHex(record.info.attempt);
      sound =
          storage::VerifyAndSync(files, layout(), {record.info.step, storage::AttemptId{*id}}, *attempt, read_options);
    }
    if (!sound.ok()) {
      persister->ForgetCommitted();
      return absl::DataLossError(
          fmt::format("step {} is {}: {}", record.info.step, StepStateName(record.info.state), record.info.reason));
    }
    options.on_warning(
        fmt::format("step {} is sound again; it was {}", record.info.step, StepStateName(record.info.state)));
    record.info.state = StepState::kCommitted;
    record.info.reason.clear();
    Mark(record, StepState::kCommitted, "");
    return absl::OkStatus();
  }

  // Blocks until every save is settled.
  void Settle() {
    if (staging_thread != nullptr) staging_thread->Drain();
    stream->Drain();
  }

  // The trainer may not have waited for an overlapped save: then its tensors, and its State, are still being read.
  void WaitUntilTensorsAreRead() {
    if (last_overlapped != nullptr) last_overlapped->WaitUntilEnded().IgnoreError();  // its future has the error
  }

  absl::Status StartStagingThread() {
    if (staging_thread != nullptr) return absl::OkStatus();
    auto thread = SerialExecutor::Create();
    if (!thread.ok()) return thread.status();
    staging_thread = *std::move(thread);
    return absl::OkStatus();
  }

  // Copies on the devices what is there; null, and `*why_not` set, where the save must go on as a blocking one.
  absl::StatusOr<std::unique_ptr<State::DeviceImage>> TakeImage(State& state, const StagingPlan& plan,
                                                                std::string* why_not) {
    if (plan.device_tensors().empty()) {
      *why_not = "no tensor is on a device";
      return nullptr;
    }
    uint64_t budget = options.device_staging_bytes_max;
    if (budget != 0) {
      const uint64_t in_use = device_bytes_in_use;
      if (plan.device_bytes() + in_use > budget) {
        *why_not = fmt::format("{} bytes are on devices, device_staging_bytes_max is {}, and {} of them are in use",
                               plan.device_bytes(), budget, in_use);
        return nullptr;
      }
      budget -= in_use;
    }
    auto image = state.CopyOnDevice(plan.device_tensors(), budget);
    if (image.ok() && *image == nullptr) *why_not = "no room on the device, or within device_staging_bytes_max";
    return image;
  }

  // Copies the tensors on the staging thread; resolves when that is done.
  Future StageBehind(State& state, std::shared_ptr<StagedSnapshot> snapshot) {
    auto staged = std::make_shared<Promise>();
    Future future = staged->future();
    last_overlapped = snapshot->progress();
    staging_thread->Add([this, &state, staged, snapshot = std::move(snapshot)]() mutable {
      const absl::Status status = stager.CopyTensors(state, *snapshot);
      staged->Set(status);
      EndStaging(std::move(snapshot), status);
    });
    return future;
  }

  // Brings a device's copies to the host on the staging thread.
  void DrainBehind(std::unique_ptr<State::DeviceImage> image, std::shared_ptr<StagedSnapshot> snapshot) {
    const uint64_t bytes = image->bytes();
    device_bytes_in_use += bytes;
    std::shared_ptr<State::DeviceImage> shared = std::move(image);  // std::function copies what it holds
    staging_thread->Add([this, bytes, image = std::move(shared), snapshot = std::move(snapshot)]() mutable {
      const absl::Status status = Stager::DrainImage(*image, *snapshot);
      image.reset();
      device_bytes_in_use -= bytes;
      EndStaging(std::move(snapshot), status);
    });
  }

  // Lets go of the snapshot first: consumers may count on its memory once they are done with it.
  static void EndStaging(std::shared_ptr<StagedSnapshot> snapshot, const absl::Status& status) {
    const std::shared_ptr<StagingProgress> progress = snapshot->progress();
    snapshot.reset();
    progress->End(status);
  }

  // Constant after Open.
  const CheckpointerOptions options;
  const storage::ShardReadOptions read_options;
  storage::FileSystem& files;

  // Owned by the trainer's thread.
  bool closed = false;
  absl::Time last_save;
  Future last_staged;
  std::shared_ptr<StagingProgress> last_progress;    // of the last save
  std::shared_ptr<const StagingPlan> last_plan;      // and where its entries are
  std::shared_ptr<StagingProgress> last_overlapped;  // of the last save that read the State after Save returned
  Stager stager;

  // Thread-safe. Destroyed from the bottom up: whoever stages stops before the stream, the stream before its consumer,
  // that before the store.
  OpenSaves open_saves;
  std::atomic<uint64_t> device_bytes_in_use = 0;  // of images that are not drained
  std::unique_ptr<storage::Store> store;
  std::unique_ptr<Persister> persister;
  std::unique_ptr<SnapshotStream> stream;
  std::unique_ptr<SerialExecutor> staging_thread;  // made by the first save that is not a blocking one
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
  impl_->WaitUntilTensorsAreRead();
  if (absl::Status failure = impl_->open_saves.TakeFailure(); !failure.ok()) {
    return absl::Status(
        failure.code(),
        fmt::format("step {} was not saved, because an earlier failure had not been seen: {}", step, Text(failure)));
  }
  if (absl::Status status = impl_->CheckSave(step, options); !status.ok()) return status;

  const Staging wanted = options.staging.value_or(impl_->options.staging);
  if (wanted != Staging::kBlocking) {
    if (absl::Status status = impl_->StartStagingThread(); !status.ok()) return status;
  }
  absl::StatusOr<std::unique_ptr<StagedSnapshot>> begun =
      impl_->stager.Begin(step, state, options, impl_->options.now());
  if (!begun.ok()) return begun.status();
  SaveHandle handle;
  handle.step_ = step;
  handle.staging_ = wanted;
  if (*begun == nullptr) {
    const absl::Status no_room = absl::ResourceExhaustedError(
        fmt::format("step {} was not saved: earlier snapshots hold {} of {} bytes of staging memory, and leave no room",
                    step, impl_->stager.arena().bytes_in_use(), impl_->stager.arena().bytes_max()));
    if (impl_->options.when_full == WhenFull::kFail) return no_room;
    handle.skipped_ = true;
    handle.staged_ = handle.committed_ = ResolvedWith(no_room);
    return handle;
  }
  std::shared_ptr<StagedSnapshot> snapshot = *std::move(begun);
  snapshot->set_staging(StagingName(wanted));
  std::unique_ptr<State::DeviceImage> image;
  if (wanted == Staging::kOnDevice) {
    std::string why_not;
    auto taken = impl_->TakeImage(state, snapshot->plan(), &why_not);
    if (!taken.ok()) return taken.status();
    image = *std::move(taken);
    if (image == nullptr) {
      handle.staging_ = Staging::kBlocking;
      snapshot->set_staging("blocking: " + why_not);
    }
  }
  impl_->last_plan = snapshot->shared_plan();
  impl_->last_progress = snapshot->progress();
  handle.committed_ = snapshot->committed()->future();
  // From here on the snapshot is written as its bytes arrive, and whatever happens is the consumers' to report too.
  impl_->stream->Publish(snapshot);
  if (handle.staging_ == Staging::kOverlapped) {
    snapshot->set_blocked(absl::Now() - start);
    handle.staged_ = impl_->StageBehind(state, std::move(snapshot));
  } else {
    const absl::Status status = image == nullptr ? impl_->stager.CopyTensors(state, *snapshot)
                                                 : impl_->stager.CopyHostTensors(state, *snapshot);
    snapshot->set_blocked(absl::Now() - start);
    if (image != nullptr && status.ok()) {
      impl_->DrainBehind(std::move(image), std::move(snapshot));
    } else {
      Impl::EndStaging(std::move(snapshot), status);
    }
    if (!status.ok()) {
      impl_->last_staged = ResolvedWith(status);
      return status;
    }
  }
  impl_->last_save = impl_->options.now();
  impl_->last_staged = handle.staged_;
  impl_->open_saves.Add(step, handle.staged_, handle.committed_);
  return handle;
}

absl::Status AsyncCheckpointer::WaitUntilStaged() {
  if (impl_->closed) return Closed();
  return impl_->last_staged.Wait();
}

absl::Status AsyncCheckpointer::WaitUntilStaged(std::string_view entry) {
  if (impl_->closed) return Closed();
  if (impl_->last_plan == nullptr) return absl::NotFoundError("nothing has been saved yet");
  const int64_t index = impl_->last_plan->Find(entry);
  if (index < 0) return absl::NotFoundError(fmt::format("the last save has no entry '{}'", entry));
  if (impl_->last_staged.ready()) return impl_->last_staged.Wait();
  const StagingPlan::Placement& place = impl_->last_plan->placements()[static_cast<size_t>(index)];
  return impl_->last_progress->WaitFor(place.offset + place.bytes);
}

absl::Status AsyncCheckpointer::Prepare(State& state) {
  if (impl_->closed) return Closed();
  impl_->WaitUntilTensorsAreRead();
  return impl_->stager.Prepare(state);
}

absl::Status AsyncCheckpointer::WaitUntilCommitted() {
  if (impl_->closed) return Closed();
  impl_->Settle();
  return impl_->open_saves.TakeFailure();
}

absl::Status AsyncCheckpointer::CheckForErrors() { return impl_->open_saves.TakeFailure(); }

absl::StatusOr<RestoreReport> AsyncCheckpointer::RestoreLatest(State& state, const RestoreOptions& options) {
  if (impl_->closed) return Closed();
  impl_->Settle();
  std::vector<std::pair<int64_t, std::string>> passed_over;
  std::set<std::string> half_written;  // tensors that an attempt which turned out damaged may have changed
  bool damage_seen = false;
  for (int64_t at_most = std::numeric_limits<int64_t>::max(); at_most >= 0;) {
    absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().FindAtOrBelow(at_most);
    if (!record.ok()) return record.status();
    if (!record->has_value()) break;
    const StepInfo& info = (*record)->info;
    at_most = info.step - 1;
    if (options.accept && !options.accept(info)) {
      passed_over.emplace_back(info.step, "not accepted by RestoreOptions::accept");
      continue;
    }
    if (info.state != StepState::kCommitted) {
      damage_seen = damage_seen || info.state != StepState::kFailed;
      passed_over.emplace_back(info.step, fmt::format("{}: {}", StepStateName(info.state), info.reason));
      continue;
    }
    RestoreResult result = impl_->TryRestore(**record, state, options);
    const bool may_fall_back = result.cause == RestoreResult::Cause::kCheckpoint ||
                               (result.cause == RestoreResult::Cause::kDevice && absl::IsInternal(result.status));
    if (may_fall_back) {
      damage_seen = true;
      half_written.insert(result.written.begin(), result.written.end());
      passed_over.emplace_back(info.step, Text(result.status));
      if (result.cause == RestoreResult::Cause::kDevice) {
        impl_->options.on_warning(fmt::format("step {} is passed over: {}", info.step, Text(result.status)));
      }
      continue;
    }
    if (result.status.ok()) {
      for (const std::string& name : result.written) half_written.erase(name);
    }
    if (!half_written.empty()) {
      return absl::DataLossError(
          fmt::format("{}, and these tensors hold parts of a newer step that turned out damaged: {}",
                      result.status.ok() ? fmt::format("step {} was restored", info.step) : Text(result.status),
                      fmt::join(half_written, ", ")));
    }
    if (!result.status.ok()) return result.status;
    result.report.passed_over = std::move(passed_over);
    return std::move(result.report);
  }
  std::string reasons;
  for (const auto& [step, reason] : passed_over) reasons += fmt::format("\n  step {}: {}", step, reason);
  if (damage_seen) {
    return absl::DataLossError(fmt::format("no step of {} can be restored:{}", impl_->layout().directory(), reasons));
  }
  return absl::NotFoundError(fmt::format("no step to restore in {}{}", impl_->layout().directory(), reasons));
}

absl::StatusOr<RestoreReport> AsyncCheckpointer::Restore(int64_t step, State& state, const RestoreOptions& options) {
  if (impl_->closed) return Closed();
  impl_->Settle();
  absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().Find(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.state == StepState::kFailed) {
    return absl::NotFoundError(fmt::format("step {} is not committed in {}", step, impl_->layout().directory()));
  }
  if (options.accept && !options.accept((*record)->info)) {
    return absl::NotFoundError(fmt::format("step {} is not accepted by RestoreOptions::accept", step));
  }
  if ((*record)->info.state != StepState::kCommitted) {
    if (absl::Status status = impl_->Reexamine(**record); !status.ok()) return status;
  }
  RestoreResult result = impl_->TryRestore(**record, state, options);
  if (!result.status.ok()) return result.status;
  return std::move(result.report);
}

absl::StatusOr<StepInfo> AsyncCheckpointer::LatestStep() const {
  if (impl_->closed) return Closed();
  for (int64_t at_most = std::numeric_limits<int64_t>::max(); at_most >= 0;) {
    absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().FindAtOrBelow(at_most);
    if (!record.ok()) return record.status();
    if (!record->has_value()) break;
    if ((*record)->info.state == StepState::kCommitted) return (*record)->info;
    at_most = (*record)->info.step - 1;
  }
  return absl::NotFoundError(fmt::format("no step is committed in {}", impl_->layout().directory()));
}

absl::StatusOr<StepInfo> AsyncCheckpointer::BestStep(std::string_view metric, BestMode mode) const {
  if (impl_->closed) return Closed();
  absl::StatusOr<std::optional<storage::StepRecord>> record = impl_->store->manifest().FindBest(metric, mode);
  if (!record.ok()) return record.status();
  if (record->has_value()) return (*record)->info;
  return absl::NotFoundError(
      fmt::format("no committed step in {} has a finite metric '{}'", impl_->layout().directory(), metric));
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
  impl_->Settle();
  impl_->closed = true;
  impl_->staging_thread.reset();
  impl_->stream.reset();
  impl_->persister.reset();
  impl_->store.reset();
  const absl::Status first = impl_->open_saves.TakeFailure();
  for (absl::Status more = impl_->open_saves.TakeFailure(); !more.ok(); more = impl_->open_saves.TakeFailure()) {
    impl_->options.on_warning(Text(more));
  }
  return first;
}

}  // namespace tidemark
