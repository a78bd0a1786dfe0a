#include "snapshot/staging/stager.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "snapshot/staging/streaming_copy.h"
#include "storage/bytes/utf8.h"

namespace tidemark {
namespace {

// Two threads come near the memory's bandwidth on small machines and eight on large ones; more only wait for each
// other.
constexpr int kCopyThreadsMax = 8;

// Snapshots from this size on are more than what a core's caches hold: nothing of them would be there when they are
// written, and everything else would have gone.
constexpr uint64_t kStreamingBytesMin = 32 << 20;
// Shorter pieces would be mostly heads and tails of lines.
constexpr uint64_t kStreamingPieceBytesMin = 4096;

void CopyPortably(std::byte* destination, const std::byte* source, size_t bytes) {
  std::memcpy(destination, source, bytes);
}

int CopyThreads() { return std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, kCopyThreadsMax); }

std::vector<State::CopyRequest> Requests(std::span<const size_t> entries, const StagedSnapshot& snapshot) {
  std::vector<State::CopyRequest> requests;
  requests.reserve(entries.size());
  for (size_t entry : entries) requests.push_back({.entry = entry, .destination = snapshot.data(entry)});
  return requests;
}

// Of another checkpointer an overlapped save may still read the tensors.
// For the values that a state does not know before its first save, such as the steps that an optimizer has made.
constexpr uint64_t kValueBytesToCome = 2 << 20;

absl::Status Refresh(State& state) {
  state.AwaitStaging();
  return Guarded("State::Refresh", [&] { return state.Refresh(); });
}

// Copies the tensors that the host cannot reach, run by run. `source` is a State or a DeviceImage, `what` names its
// function that copies. Calls copied(run) after each run.
template <typename Source, typename Copied>
absl::Status CopyDeviceTensors(Source& source, std::string_view what, StagedSnapshot& snapshot, const Copied& copied) {
  const StagingPlan& plan = snapshot.plan();
  for (size_t i = 0; i < plan.runs().size(); ++i) {
    const StagingPlan::Run& run = plan.runs()[i];
    if (run.on_host) continue;
    const auto entries = std::span(plan.device_tensors()).subspan(run.first, run.last - run.first);
    absl::Status status = Guarded(what, [&] { return source.CopyToHost(Requests(entries, snapshot)); });
    if (!status.ok()) return status;
    copied(i);
  }
  return absl::OkStatus();
}

// A tensor that had host memory when the plan was made, and has none now.
absl::Status LeftHostMemory(const State::Entry& entry) {
  return absl::InternalError(
      fmt::format("entry '{}' left host memory without a new structure_version", entry.spec.name));
}

// Readers print strings, and put them into JSON. Bytes that are not UTF-8 would be changed there.
absl::Status CheckStrings(const StagedSnapshot& snapshot) {
  for (const size_t entry : snapshot.plan().sized_values()) {
    const EntrySpec& spec = snapshot.plan().specs()[entry];
    if (spec.kind != EntryKind::kString) continue;
    const std::span<const std::byte> bytes = snapshot.bytes(entry);
    if (storage::IsUtf8({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) continue;
    return absl::InvalidArgumentError(
        fmt::format("entry '{}': the string is not UTF-8; use a vector of bytes", spec.name));
  }
  return absl::OkStatus();
}

// What becomes of a save for which there is room only when the one before is written.
std::string_view UntilTheOneBeforeIsWritten(WhenFull when_full) {
  switch (when_full) {
    case WhenFull::kBlock:
      break;
    case WhenFull::kSkip:
      return "saves are skipped until the one before is written";
    case WhenFull::kFail:
      return "saves fail until the one before is written";
  }
  return "saves wait until the one before is written";
}

std::function<void(std::string_view)> WarnOfShortage(WhenFull when_full, std::function<void(std::string_view)> warn) {
  if (warn == nullptr) return nullptr;
  return [when_full, warn = std::move(warn)](std::string_view limit) {
    warn(fmt::format("{}, because memory is short: {}", UntilTheOneBeforeIsWritten(when_full), limit));
  };
}

// Memory that the driver of the state's device gives; null data: there is no such device.
absl::StatusOr<StagingMemory> PinnedMemory(State& state, size_t bytes) {
  auto pinned = Guarded("State::AllocateStaging", [&] { return state.AllocateStaging(bytes); });
  if (!pinned.ok()) return pinned.status();
  return StagingMemory{.data = *std::move(pinned), .kind = "pinned"};
}

}  // namespace

Stager::Stager(const CheckpointerOptions& options, std::function<AvailableMemory()> available,
               std::function<void(std::string_view)> warn)
    : when_full_(options.when_full),
      budget_is_automatic_(options.staging_bytes_max == 0),
      arena_(StagingArena::Create(options.staging_bytes_max, std::move(available),
                                  WarnOfShortage(options.when_full, std::move(warn)))),
      pool_(CopyThreads()) {}

std::shared_ptr<const StagingPlan> Stager::PlanFor(const State& state) {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) {
    return plan->structure_version() == state.structure_version();
  });
  if (found != plans_.end()) {
    std::rotate(found, found + 1, plans_.end());
    return plans_.back();
  }
  if (plans_.size() == kStatesMax) plans_.erase(plans_.begin());
  plans_.push_back(std::make_shared<const StagingPlan>(state));
  return plans_.back();
}

StagingArena::MemorySource Stager::SourceFor(State& state) {
  return [this, &state](size_t bytes) -> absl::StatusOr<StagingMemory> {
    absl::StatusOr<StagingMemory> memory = PinnedMemory(state, bytes);
    return !memory.ok() || memory->data != nullptr ? memory : MapStagingMemory(bytes, pool_);
  };
}

absl::StatusOr<std::unique_ptr<StagingArena::Block>> Stager::RoomFor(int64_t step, State& state, uint64_t bytes,
                                                                     const SaveRequest& request,
                                                                     const Deadline* last_chance) {
  const StagingArena::MemorySource source = SourceFor(state);
  for (;;) {
    const uint64_t seen = arena_->changes();
    // First, for what a save that has been written held can be had then.
    const bool only_evaluators = last_chance != nullptr && only_evaluators_are_left_ && only_evaluators_are_left_();
    auto block = arena_->Acquire(bytes, WhenFull::kSkip, source);
    if (!block.ok() || *block != nullptr) return block;
    if (make_room_ && make_room_(step)) continue;
    if (last_chance != nullptr) {
      if (only_evaluators) return arena_->AcquireBeyondBudget(bytes, source);
      if (!arena_->AwaitChange(seen, *last_chance)) return block;
    } else {
      if (when_full_ != WhenFull::kBlock) return block;
      const WaitEnd end = AwaitUnlessCancelled(request.cancelled, request.deadline,
                                               [&](const Deadline& until) { return arena_->AwaitChange(seen, until); });
      // Either there is room now, or somebody may have become the last to hold a snapshot.
      if (end == WaitEnd::kDone) continue;
      if (end == WaitEnd::kCancelled) {
        return absl::CancelledError(
            fmt::format("step {} was not saved: the wait for staging memory was cancelled", step));
      }
      return absl::DeadlineExceededError(fmt::format(
          "step {} was not saved: there was no room in the staging memory in time (CheckpointerOptions::save_timeout)",
          step));
    }
  }
}

absl::Status Stager::Prepare(State& state) {
  if (absl::Status status = Refresh(state); !status.ok()) return status;
  // A refusal is the business of the save that needs the memory, and so is it to make room.
  const uint64_t bytes = PlanFor(state)->PlaceSizedValues(state.entries()).total_bytes;
  FinishTouching(bytes);
  arena_->Acquire(bytes, WhenFull::kSkip, SourceFor(state)).IgnoreError();
  return absl::OkStatus();
}

void Stager::PrepareInBackground(State& state) {
  const StagingPlan::SizedPlaces sized = PlanFor(state)->PlaceSizedValues(state.entries());
  if (TouchesRoomFor(sized.total_bytes)) return;
  FinishTouching(sized.total_bytes);
  // At the first save values such as strings may be longer, and there may be more of them. An explicit budget may have
  // no room for that, and a small state would not take memory that is so much larger.
  uint64_t bytes = sized.total_bytes;
  const uint64_t with_more = bytes + sized.value_bytes + std::min(bytes / 64, kValueBytesToCome);
  if (budget_is_automatic_ && StagingArena::Fits(RoundUpToPages(with_more), RoundUpToPages(bytes))) bytes = with_more;
  const auto untouched = [&](size_t rounded) -> absl::StatusOr<StagingMemory> {
    absl::StatusOr<StagingMemory> memory = PinnedMemory(state, rounded);
    if (!memory.ok() || memory->data != nullptr) return memory;
    memory = MapUntouchedMemory(rounded);
    if (memory.ok()) toucher_ = std::make_unique<PageToucher>(memory->data, rounded);
    return memory;
  };
  arena_->Acquire(bytes, WhenFull::kSkip, untouched).IgnoreError();
  if (toucher_ != nullptr) toucher_->Begin();
}

bool Stager::TouchesRoomFor(uint64_t bytes) const {
  return toucher_ != nullptr && StagingArena::Fits(toucher_->bytes(), RoundUpToPages(bytes));
}

void Stager::FinishTouching(uint64_t bytes) {
  if (toucher_ == nullptr) return;
  const bool is_touched = TouchesRoomFor(bytes) && toucher_->Finish(pool_).ok();
  toucher_.reset();
  if (!is_touched) arena_->DropIdle();
}

absl::StatusOr<std::unique_ptr<StagedSnapshot>> Stager::Begin(int64_t step, State& state, const SaveRequest& request,
                                                              absl::Time created, SavePhases* phases,
                                                              const Deadline* last_chance) {
  const SavePhases::Time begin = SavePhases::Now();
  if (absl::Status status = Refresh(state); !status.ok()) return status;
  std::shared_ptr<const StagingPlan> plan = PlanFor(state);
  StagingPlan::SizedPlaces sized = plan->PlaceSizedValues(state.entries());
  const uint64_t early_bytes = plan->early_bytes() + sized.value_bytes;
  const SavePhases::Time refreshed = SavePhases::Now();
  FinishTouching(sized.total_bytes);
  auto block = RoomFor(step, state, sized.total_bytes, request, last_chance);
  const SavePhases::Time got_room = SavePhases::Now();
  if (phases != nullptr) {
    phases->Add("refresh", kTrainerLane, begin, refreshed);
    phases->AddWait("room", kTrainerLane, refreshed, got_room);
  }
  if (!block.ok()) return block.status();
  if (*block == nullptr) return nullptr;
  absl::Status noted = Guarded("State::BeginStaging", [&] { return state.BeginStaging(); });
  if (!noted.ok()) return noted;
  auto snapshot = std::make_unique<StagedSnapshot>(step, plan, std::move(sized), *std::move(block), request.metrics,
                                                   request.user_metadata, created, request.persist);
  std::vector<size_t> unreachable;
  for (const std::vector<size_t>* entries : {&plan->early_entries(), &plan->sized_values()}) {
    for (const size_t entry : *entries) {
      const State::Entry& value = state.entries()[entry];
      if (value.bytes == 0) continue;
      if (value.host == nullptr) {
        unreachable.push_back(entry);
      } else {
        std::memcpy(snapshot->data(entry), value.host, value.bytes);
      }
    }
  }
  if (!unreachable.empty()) {
    absl::Status status =
        Guarded("State::CopyToHost", [&] { return state.CopyToHost(Requests(unreachable, *snapshot)); });
    if (!status.ok()) return status;
  }
  if (absl::Status status = CheckStrings(*snapshot); !status.ok()) return status;
  if (phases != nullptr) phases->Add("values", kTrainerLane, got_room, SavePhases::Now(), early_bytes);
  return snapshot;
}

absl::StatusOr<std::unique_ptr<OverlapCheck>> Stager::ReadForCheck(State& state, StagedSnapshot& snapshot) {
  const SavePhases::Time begin = SavePhases::Now();
  const StagingPlan& plan = snapshot.plan();
  const std::span<const State::Entry> entries = state.entries();
  auto check = std::make_unique<OverlapCheck>(snapshot.shared_plan());
  std::atomic<int64_t> without_memory{-1};
  pool_.Run(plan.runs().size(), [&](size_t i) {
    const StagingPlan::Run& run = plan.runs()[i];
    for (size_t p = run.first; run.on_host && p < run.last; ++p) {
      const StagingPlan::CopyPiece& piece = plan.pieces()[p];
      const std::byte* source = entries[piece.entry].host;
      if (source == nullptr) {
        without_memory = static_cast<int64_t>(piece.entry);
        return;
      }
      check->NotePiece(p, {source + piece.begin, piece.bytes});
    }
  });
  if (without_memory >= 0) return LeftHostMemory(entries[static_cast<size_t>(without_memory)]);
  absl::Status status = CopyDeviceTensors(state, "State::CopyToHost", snapshot, [&](size_t i) {
    const StagingPlan::Run& run = plan.runs()[i];
    for (size_t t = run.first; t < run.last; ++t) {
      check->NoteDeviceTensor(t, snapshot.bytes(plan.device_tensors()[t]));
    }
  });
  if (!status.ok()) return status;
  snapshot.NoteDigested(begin, plan.host_bytes() + plan.device_bytes());
  return check;
}

absl::Status Stager::CopyTensors(State& state, StagedSnapshot& snapshot, OverlapCheck* check) {
  if (absl::Status status = CopyHostTensors(state, snapshot, check); !status.ok()) return status;
  absl::Status status = CopyDeviceTensors(state, "State::CopyToHost", snapshot, [&](size_t i) {
    const StagingPlan& plan = snapshot.plan();
    const StagingPlan::Run& run = plan.runs()[i];
    for (size_t t = run.first; check != nullptr && t < run.last; ++t) {
      check->CompareDeviceTensor(t, snapshot.bytes(plan.device_tensors()[t]));
    }
    snapshot.progress()->FinishRun(i);
  });
  if (status.ok() && check != nullptr) status = check->Result(snapshot.step());
  return status;
}

absl::Status Stager::DrainImage(State::DeviceImage& image, StagedSnapshot& snapshot) {
  return CopyDeviceTensors(image, "State::DeviceImage::CopyToHost", snapshot,
                           [&](size_t i) { snapshot.progress()->FinishRun(i); });
}

absl::Status Stager::CopyHostTensors(const State& state, StagedSnapshot& snapshot, OverlapCheck* check) {
  const StagingPlan& plan = snapshot.plan();
  const std::span<const State::Entry> entries = state.entries();
  const auto copy_long =
      plan.fixed_bytes() >= kStreamingBytesMin ? RunnableStreamingCopies().front().copy : CopyPortably;
  std::atomic<int64_t> without_memory{-1};
  pool_.Run(plan.runs().size(), [&](size_t i) {
    const StagingPlan::Run& run = plan.runs()[i];
    if (!run.on_host) return;
    for (size_t p = run.first; p < run.last; ++p) {
      const StagingPlan::CopyPiece& piece = plan.pieces()[p];
      const std::byte* source = entries[piece.entry].host;
      if (source == nullptr) {
        without_memory = static_cast<int64_t>(piece.entry);
        return;
      }
      std::byte* const destination = snapshot.data(piece.entry) + piece.begin;
      (piece.bytes >= kStreamingPieceBytesMin ? copy_long : CopyPortably)(destination, source + piece.begin,
                                                                          piece.bytes);
      if (check != nullptr) check->ComparePiece(p, {destination, piece.bytes});
    }
    snapshot.progress()->FinishRun(i);
  });
  if (without_memory < 0) return absl::OkStatus();
  return LeftHostMemory(entries[static_cast<size_t>(without_memory)]);
}

}  // namespace tidemark
