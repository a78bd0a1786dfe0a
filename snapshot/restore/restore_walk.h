// RestoreWalk: which attempt a restore takes, and what becomes of those that turn out not to be what they should.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_RESTORE_WALK_H_
#define TIDEMARK_SNAPSHOT_RESTORE_RESTORE_WALK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/ranks/rank_exchange.h"
#include "snapshot/restore/restore.h"
#include "snapshot/restore/restore_catalog.h"
#include "storage/io/file_system.h"
#include "storage/shard/read/shard_reader.h"
#include "tidemark/restore_options.h"
#include "tidemark/state.h"
#include "tidemark/step_selector.h"

namespace tidemark {

// Used for one restore, on the thread that restores, while no save is in flight. Refers to its constructor's arguments.
class RestoreWalk {
 public:
  // `companions`: restored with the state. `why_unhealthy`: what is known against a step, recorded or not; empty:
  // nothing. `damage_seen`: called when something that was committed is not what it should be. `exchange`, if not null:
  // that of rank 0; all ranks restore what it chooses.
  RestoreWalk(storage::FileSystem& files, std::unique_ptr<RestoreCatalog> catalog,
              const storage::ShardReadOptions& read, std::span<const std::shared_ptr<Companion>> companions,
              std::function<std::string(const StepInfo&)> why_unhealthy, std::function<void(std::string_view)> warn,
              std::function<void()> damage_seen, RankExchange* exchange = nullptr)
      : files_(files),
        catalog_(std::move(catalog)),
        read_(read),
        companions_(companions),
        why_unhealthy_(std::move(why_unhealthy)),
        warn_(std::move(warn)),
        damage_seen_(std::move(damage_seen)),
        exchange_(exchange) {}

  // See AsyncCheckpointer.
  absl::StatusOr<RestoreReport> Latest(State& state, const RestoreOptions& options);
  absl::StatusOr<RestoreReport> At(int64_t step, State& state, const RestoreOptions& options);
  // The selected step, or the first of several selected ones that can be restored. `steps`: all steps of the store.
  absl::StatusOr<RestoreReport> Selected(const StepSelector& selector,
                                         absl::FunctionRef<absl::StatusOr<std::vector<StepInfo>>()> steps, State& state,
                                         const RestoreOptions& options);

 private:
  // The record to try next; nullopt: there is none left. `anew`: begins with the first one. That is so for the first
  // call, and after a step was deleted while it was tried: a newer one may be committed by then.
  using Next = absl::FunctionRef<absl::StatusOr<std::optional<storage::StepRecord>>(bool anew)>;

  RestoreSource source() const {
    return {files_, catalog_->layout(), catalog_->id(),
            read_,  companions_,        exchange_ ? &exchange_->options() : nullptr};
  }
  absl::StatusOr<RestoreReport> Walk(Next next, State& state, const RestoreOptions& options);
  std::string WhyUnhealthy(const StepInfo& info, const RestoreOptions& options) const;
  absl::StatusOr<bool> PassesOver(const StepInfo& info, const RestoreOptions& options);
  absl::Status HoldingParts(std::string_view outcome) const;
  RestoreResult TryOnce(const storage::StepRecord& record, State& state, const RestoreOptions& options);
  RestoreResult Try(const storage::StepRecord& record, State& state, const RestoreOptions& options);
  absl::Status Reexamine(storage::StepRecord& record);
  void Mark(const storage::StepRecord& record, StepState state, std::string_view reason);
  void WarnOfResets(const RestoreResult& result);
  absl::Status NothingToRestore() const;

  storage::FileSystem& files_;
  const std::unique_ptr<RestoreCatalog> catalog_;
  const storage::ShardReadOptions& read_;
  const std::span<const std::shared_ptr<Companion>> companions_;
  const std::function<std::string(const StepInfo&)> why_unhealthy_;
  const std::function<void(std::string_view)> warn_;
  const std::function<void()> damage_seen_;
  RankExchange* const exchange_;

  std::set<std::pair<int64_t, std::string>> tried_;  // steps, with their attempts
  std::vector<std::pair<int64_t, std::string>> passed_over_;
  bool found_damage_ = false;           // some step is not to be had that was committed once
  std::set<std::string> half_written_;  // entries that an attempt which turned out damaged may have changed
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_RESTORE_WALK_H_
