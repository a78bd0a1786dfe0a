#include "snapshot/stager.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "snapshot/streaming_copy.h"

namespace tidemark {
namespace {

// A trainer has one state, or a few that take turns.
constexpr size_t kPlansMax = 4;

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

// Copies the tensors that are out of the host's reach, run by run. `source` is a State or a DeviceImage.
template <typename Source>
absl::Status CopyDeviceTensors(Source& source, StagedSnapshot& snapshot) {
  const StagingPlan& plan = snapshot.plan();
  for (size_t i = 0; i < plan.runs().size(); ++i) {
    const StagingPlan::Run& run = plan.runs()[i];
    if (run.on_host) continue;
    const auto entries = std::span(plan.device_tensors()).subspan(run.first, run.last - run.first);
    if (absl::Status status = source.CopyToHost(Requests(entries, snapshot)); !status.ok()) return status;
    snapshot.progress()->FinishRun(i);
  }
  return absl::OkStatus();
}

}  // namespace

Stager::Stager(const CheckpointerOptions& options)
    : when_full_(options.when_full), arena_(StagingArena::Create(options.staging_bytes_max)), pool_(CopyThreads()) {}

std::shared_ptr<const StagingPlan> Stager::PlanFor(const State& state) {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) {
    return plan->structure_version() == state.structure_version();
  });
  if (found != plans_.end()) {
    std::rotate(found, found + 1, plans_.end());
    return plans_.back();
  }
  if (plans_.size() == kPlansMax) plans_.erase(plans_.begin());
  plans_.push_back(std::make_shared<const StagingPlan>(state));
  return plans_.back();
}

StagingArena::MemorySource Stager::SourceFor(State& state) {
  return [this, &state](size_t bytes) -> absl::StatusOr<StagingMemory> {
    if (std::shared_ptr<std::byte> pinned = state.AllocateStaging(bytes)) {
      return StagingMemory{.data = std::move(pinned), .kind = "pinned"};
    }
    return MapStagingMemory(bytes, pool_);
  };
}

absl::StatusOr<std::unique_ptr<StagingArena::Block>> Stager::RoomFor(int64_t step, State& state,
                                                                     const StagingPlan& plan,
                                                                     const Deadline* last_chance) {
  const StagingArena::MemorySource source = SourceFor(state);
  for (;;) {
    const uint64_t seen = arena_->changes();
    // First, for what a save that has been written held can be had then.
    const bool only_evaluators = last_chance != nullptr && only_evaluators_are_left_ && only_evaluators_are_left_();
    auto block = arena_->Acquire(plan.total_bytes(), WhenFull::kSkip, source);
    if (!block.ok() || *block != nullptr) return block;
    if (make_room_ && make_room_(step)) continue;
    if (last_chance != nullptr) {
      if (only_evaluators) return arena_->AcquireBeyondBudget(plan.total_bytes(), source);
      if (!arena_->AwaitChange(seen, *last_chance)) return block;
    } else {
      if (when_full_ != WhenFull::kBlock) return block;
      // Either there is room now, or somebody may have become the last to hold a snapshot.
      arena_->AwaitChange(seen);
    }
  }
}

absl::Status Stager::Prepare(State& state) {
  if (absl::Status status = state.Refresh(); !status.ok()) return status;
  // A refusal is the business of the save that needs the memory, and so is it to make room.
  arena_->Acquire(PlanFor(state)->total_bytes(), WhenFull::kSkip, SourceFor(state)).IgnoreError();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StagedSnapshot>> Stager::Begin(int64_t step, State& state, const SaveOptions& options,
                                                              absl::Time created, SavePhases* phases,
                                                              const Deadline* last_chance) {
  const SavePhases::Time begin = SavePhases::Now();
  if (absl::Status status = state.Refresh(); !status.ok()) return status;
  std::shared_ptr<const StagingPlan> plan = PlanFor(state);
  const SavePhases::Time refreshed = SavePhases::Now();
  auto block = RoomFor(step, state, *plan, last_chance);
  const SavePhases::Time got_room = SavePhases::Now();
  if (phases != nullptr) {
    phases->Add("refresh", kTrainerLane, begin, refreshed);
    phases->AddWait("room", kTrainerLane, refreshed, got_room);
  }
  if (!block.ok()) return block.status();
  if (*block == nullptr) return nullptr;
  if (absl::Status status = state.BeginStaging(); !status.ok()) return status;
  auto snapshot = std::make_unique<StagedSnapshot>(step, plan, *std::move(block), options.metrics,
                                                   options.user_metadata, created, options.persist);
  std::vector<size_t> unreachable;
  for (size_t entry : plan->early_entries()) {
    const State::Entry& value = state.entries()[entry];
    if (value.host == nullptr) {
      unreachable.push_back(entry);
    } else {
      std::memcpy(snapshot->data(entry), value.host, value.bytes);
    }
  }
  if (!unreachable.empty()) {
    if (absl::Status status = state.CopyToHost(Requests(unreachable, *snapshot)); !status.ok()) return status;
  }
  if (phases != nullptr) phases->Add("values", kTrainerLane, got_room, SavePhases::Now(), plan->early_bytes());
  return snapshot;
}

absl::Status Stager::CopyTensors(State& state, StagedSnapshot& snapshot) {
  if (absl::Status status = CopyHostTensors(state, snapshot); !status.ok()) return status;
  return CopyDeviceTensors(state, snapshot);
}

absl::Status Stager::DrainImage(State::DeviceImage& image, StagedSnapshot& snapshot) {
  return CopyDeviceTensors(image, snapshot);
}

absl::Status Stager::CopyHostTensors(const State& state, StagedSnapshot& snapshot) {
  const StagingPlan& plan = snapshot.plan();
  const std::span<const State::Entry> entries = state.entries();
  const auto copy_long =
      plan.total_bytes() >= kStreamingBytesMin ? RunnableStreamingCopies().front().copy : CopyPortably;
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
      (piece.bytes >= kStreamingPieceBytesMin ? copy_long : CopyPortably)(snapshot.data(piece.entry) + piece.begin,
                                                                          source + piece.begin, piece.bytes);
    }
    snapshot.progress()->FinishRun(i);
  });
  if (without_memory < 0) return absl::OkStatus();
  return absl::InternalError(fmt::format("entry '{}' left host memory without a new structure_version",
                                         entries[static_cast<size_t>(without_memory)].spec.name));
}

}  // namespace tidemark
