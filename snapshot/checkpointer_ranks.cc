// An AsyncCheckpointer in a job of several ranks: how they open the store, restore, and hear of what rank 0 has done.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/checkpointer_impl.h"
#include "snapshot/guarded.h"
#include "snapshot/ranks/ranked_restore.h"
#include "snapshot/restore/saved_entries.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/held_store.h"

namespace tidemark {
namespace {

// What must be the same on all ranks, for else one of them waits for another.
std::string DescribeCommonOptions(const CheckpointerOptions& options) {
  return fmt::format(
      "vote_timeout {}, outcome_margin {}, save_interval_steps {}, save_on_steps [{}], save_interval_seconds {}, "
      "save_when {}, replicated [{}]",
      absl::FormatDuration(options.ranks.vote_timeout), absl::FormatDuration(options.ranks.outcome_margin),
      options.save_interval_steps, fmt::join(options.save_on_steps, ", "), options.save_interval_seconds,
      options.save_when ? "set" : "null", fmt::join(options.ranks.replicated, ", "));
}

absl::Status CheckCommonOptions(RankExchange& exchange, const CheckpointerOptions& options) {
  const std::string own = DescribeCommonOptions(options);
  const absl::StatusOr<std::string> of_rank_0 = exchange.FromRank0("Open (rank 0's options)", absl::OkStatus(), own);
  if (!of_rank_0.ok()) return of_rank_0.status();
  if (*of_rank_0 == own) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("options that must be the same on all ranks differ: {}; rank 0 has: {}", own, *of_rank_0));
}

// The error of a state into which nothing can be restored. The other ranks hear of it even where there is no step.
absl::Status CheckRestoresInto(State& state) {
  state.AwaitStaging();
  absl::Status status = Guarded("State::PrepareRestore", [&] { return state.PrepareRestore({}); });
  // After an exception, too, the state must forget what was set aside.
  status.Update(Guarded("State::AbandonRestore", [&] { state.AbandonRestore(); }));
  return status;
}

}  // namespace

absl::Status AsyncCheckpointer::Impl::OpenRanks(storage::StoreOptions store_options) {
  exchange = std::make_unique<RankExchange>(options.ranks);
  storage::RankedAttemptsOptions attempts = {
      .rank = static_cast<uint32_t>(options.ranks.rank),
      .world_size = static_cast<uint32_t>(options.ranks.world_size),
      .vote_timeout = options.ranks.vote_timeout,
      .outcome_margin = options.ranks.outcome_margin,
      .check = [this](const storage::StepRecord& record) { return CheckJoined(record); },
      .warn = [this](std::string_view line) { listeners.Warn(line); },
  };
  if (absl::Status status = exchange->Agree("Open (the options)", absl::OkStatus()); !status.ok()) return status;
  absl::Status own = CheckCommonOptions(*exchange, options);
  if (absl::Status status = exchange->Agree("Open (the common options)", own); !status.ok()) return status;
  std::string held;
  if (exchange->is_coordinator()) {
    own = Guarded("Open", [&]() -> absl::Status {
      absl::StatusOr<std::unique_ptr<storage::Store>> opened = storage::Store::Open(files, store_options);
      if (!opened.ok()) return opened.status();
      store = *std::move(opened);
      held = storage::EncodeHeldStore(store->Held());
      return absl::OkStatus();
    });
  }
  const absl::StatusOr<std::string> given = exchange->FromRank0("Open", own, held);
  if (!given.ok()) return given.status();
  own = Guarded("Open", [&]() -> absl::Status {
    absl::StatusOr<std::unique_ptr<storage::RankedAttempts>> part;
    if (exchange->is_coordinator()) {
      part = storage::RankedAttempts::OpenCoordinator(files, *store, std::move(attempts));
    } else {
      const absl::StatusOr<storage::HeldStore> of_rank_0 = storage::DecodeHeldStore(*given);
      if (!of_rank_0.ok()) return of_rank_0.status();
      absl::StatusOr<std::unique_ptr<storage::Store>> joined =
          storage::Store::Join(files, std::move(store_options), *of_rank_0);
      if (!joined.ok()) return joined.status();
      store = *std::move(joined);
      part = storage::RankedAttempts::OpenParticipant(files, store->layout(), *of_rank_0, std::move(attempts));
    }
    if (!part.ok()) return part.status();
    ranked_attempts = *std::move(part);
    return absl::OkStatus();
  });
  return exchange->Agree("Open (the ranks)", own);
}

// Reads the shards' indices. A job of many ranks does that only when the step has other entries or sizes than the one
// that was checked last.
absl::Status AsyncCheckpointer::Impl::CheckJoined(const storage::StepRecord& record) {
  constexpr uint32_t kCheckedEachTime = 64;
  const std::pair<uint64_t, uint64_t> size(record.info.entry_count, record.info.logical_bytes);
  if (checked_size == size && record.info.world_size > kCheckedEachTime) return absl::OkStatus();
  const auto id = storage::FromHex(record.info.attempt);
  if (!id) return absl::InternalError(fmt::format("'{}' is no attempt", record.info.attempt));
  absl::StatusOr<storage::Attempt> attempt =
      storage::ReadAttempt(files, store->layout(), store->id(), {record.info.step, storage::AttemptId{*id}});
  if (absl::IsDataLoss(attempt.status()) || absl::IsNotFound(attempt.status())) return attempt.status();
  if (!attempt.ok()) {
    checked_size = size;  // there is one warning
    // Each rank has said that its shard is whole. That this process cannot look is no reason to lose the step.
    listeners.Warn(fmt::format("step {} is committed, and it was not checked whether the shards of all ranks fit: {}",
                               record.info.step, std::string(attempt.status().message())));
    return absl::OkStatus();
  }
  absl::Status voted = storage::CheckShards(attempt->record, record, fmt::format("step {}", record.info.step));
  if (!voted.ok()) return voted;
  const std::unique_ptr<SavedEntries> entries = EntriesOf(*std::move(attempt), read_options);
  for (size_t entry = 0; entry < entries->index().entries.size(); ++entry) {
    if (absl::Status status = entries->Check(entry); !status.ok()) return status;
  }
  checked_size = size;
  return absl::OkStatus();
}

absl::Status AsyncCheckpointer::Impl::CheckIsHolder() const {
  if (exchange == nullptr || exchange->is_coordinator()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("rank {} does not hold the store; only rank 0 may do that", options.ranks.rank));
}

std::shared_ptr<PartOfState> AsyncCheckpointer::Impl::PartOf(State& state) {
  if (exchange == nullptr || options.ranks.replicated.empty()) return nullptr;
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part->whole() == &state; });
  if (found != parts.end()) {
    std::rotate(found, found + 1, parts.end());
    return parts.back();
  }
  if (parts.size() == kStatesMax) parts.erase(parts.begin());
  parts.push_back(std::make_shared<PartOfState>(state, options.ranks));
  return parts.back();
}

std::shared_ptr<PartOfState> AsyncCheckpointer::Impl::PartToStage(State& state) {
  // An evaluator sees the whole state.
  return stream->has_evaluators() ? nullptr : PartOf(state);
}

void AsyncCheckpointer::Impl::NoteSharedEntries(State& state, const std::shared_ptr<PartOfState>& part,
                                                StagedSnapshot& snapshot) {
  const std::shared_ptr<PartOfState> shared = PartOf(state);
  if (shared == nullptr) return;
  if (part == nullptr) shared->Look();
  snapshot.set_shared(shared->structure(), part == nullptr ? shared->left_out() : std::vector<bool>());
  for (const std::string& pattern : shared->patterns_without_entry()) {
    if (!patterns_without_entry.IsNew(pattern)) continue;
    listeners.Warn(
        fmt::format("RankOptions::replicated: no entry of step {} matches '{}'; what it was meant for is "
                    "written by every rank",
                    snapshot.step(), pattern));
  }
}

void AsyncCheckpointer::Impl::WarnOfLostExchange(const absl::Status& why) {
  if (std::exchange(warned_of_lost_exchange, true)) return;
  listeners.Warn(
      fmt::format("the ranks cannot agree on what is due any more, and each goes by its own rules and signals: {}",
                  std::string(why.message())));
}

void AsyncCheckpointer::Impl::LookAsOtherRank() {
  if (exchange == nullptr || exchange->is_coordinator()) return;
  const absl::Status looked = Guarded("the look at the journal", [this] { return store->LookAfresh(); });
  if (looked.ok()) return;
  listeners.Warn(fmt::format("the newest steps may be missing: {}", std::string(looked.message())));
}

absl::StatusOr<RestoreReport> AsyncCheckpointer::Impl::RestoreRanks(const StepSelector& step, State& state,
                                                                    RestoreOptions restore) {
  // What another rank's state has.
  restore.allow_unexpected = true;
  if (exchange->is_coordinator()) {
    // What the other ranks' evaluators say is recorded when they come here.
    if (absl::Status status = exchange->Agree("Restore", CheckRestoresInto(state)); !status.ok()) return status;
    return EndRestore(*exchange, Guarded("Restore", [&] { return RestoreSelected(step, state, restore); }));
  }
  if (restore.healthy_only || step.kind() == StepSelector::Kind::kLatestHealthy) {
    // Rank 0 waits for what this rank's evaluators say.
    const absl::Status recorded = Guarded("Restore", [&] {
      AwaitVerdicts(restore.evaluations_timeout);
      return housekeeper->Flush();
    });
    if (!recorded.ok()) {
      listeners.Warn(fmt::format("verdicts of this rank may be missing: {}", std::string(recorded.message())));
    }
  }
  if (absl::Status status = exchange->Agree("Restore", CheckRestoresInto(state)); !status.ok()) return status;
  const RestoreSource source = {files, store->layout(), store->id(), read_options, {}, &options.ranks};
  absl::StatusOr<RestoreReport> report = FollowRestore(
      *exchange, [&](const storage::StepRecord& record) { return RestoreAttempt(source, record, state, restore); },
      [this] { persister->ForgetCommitted(); });
  LookAsOtherRank();
  return report;
}

}  // namespace tidemark
