// StoreReader's restores, from a store that a trainer may be writing at the same time.

#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "snapshot/restore/restore_walk.h"
#include "snapshot/restore/store_reader_catalog.h"
#include "snapshot/restore/stored_snapshot.h"
#include "storage/bytes/ids.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

constexpr absl::Duration kLeaseExpiry = absl::Seconds(60);
constexpr int64_t kRenewalsInExpiry = 3;

std::string ThisProcess() {
  std::array<char, 256> host = {};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("reading process {} on {}", getpid(), host.data());
}

// Whether the error concerns one step, so that another step may be tried.
bool MayTryAnother(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInternal(status);
}

}  // namespace

StoreReader::Catalog::Catalog(Host host)
    : host_(std::move(host)), leases_(host_.files, host_.layout, storage::ThisMachine(), storage::MonotonicNow) {}

// Without a right to write, without room, or on a read-only disk there is no lease, and reading goes on.
void StoreReader::Catalog::Lease(const storage::StepRecord& record) {
  const auto attempt = storage::FromHex(record.info.attempt);
  if (!host_.may_lease || !attempt) return;
  // A unique name, because two leases of one name exclude each other.
  auto lease = leases_.Acquire({.step = record.info.step,
                                .attempt = storage::AttemptId{*attempt},
                                .evaluator = fmt::format("restore-{}", storage::ToHex(storage::RandomBytes16())),
                                .holder = ThisProcess(),
                                .machine = {},
                                .expiry = kLeaseExpiry});
  if (!lease.ok()) return;
  lease_ = *std::move(lease);
  // Without a renewal thread the lease still holds on this machine, and on others until it expires.
  auto renewal =
      LeaseRenewal::Start([lease = lease_.get()] { return lease->Renew(); }, kLeaseExpiry / kRenewalsInExpiry);
  if (renewal.ok()) renewal_ = *std::move(renewal);
}

absl::StatusOr<bool> StoreReader::Catalog::Hold(const storage::StepRecord& record) {
  renewal_.reset();
  lease_.reset();
  const int64_t step = record.info.step;
  const std::string attempt = record.info.attempt;
  Lease(record);
  if (absl::Status status = host_.refresh(); !status.ok()) return status;
  const std::optional<storage::StepRecord> now = host_.find(step);
  return now && now->info.state == StepState::kCommitted && now->info.attempt == attempt;
}

absl::StatusOr<RestoreReport> StoreReader::RestoreLatest(State& state, const RestoreOptions& options) {
  return Restore(StepSelector::Latest(), state, options);
}

absl::StatusOr<RestoreReport> StoreReader::Restore(const StepSelector& step, State& state,
                                                   const RestoreOptions& options) {
  return Guarded("Restore", [&]() -> absl::StatusOr<RestoreReport> {
    if (absl::Status status = Refresh(); !status.ok()) return status;
    const absl::StatusOr<StepSelector> with_mode = step.WithMode(recorded_best_modes());
    if (!with_mode.ok()) return with_mode.status();
    std::unique_ptr<Catalog> catalog = NewCatalog();
    storage::FileSystem& files = catalog->files();
    const storage::ShardReadOptions read = catalog->read();
    RestoreWalk walk(
        files, std::move(catalog), read, {}, [](const StepInfo& info) { return info.unhealthy(); },
        [](std::string_view) {}, [] {});
    return walk.Selected(
        *with_mode, [this]() -> absl::StatusOr<std::vector<StepInfo>> { return Steps(); }, state, options);
  });
}

absl::StatusOr<std::shared_ptr<const Snapshot>> StoreReader::Load(const StepSelector& step,
                                                                  const std::vector<std::string>& entries) {
  return Guarded("Load", [&]() -> absl::StatusOr<std::shared_ptr<const Snapshot>> {
    if (absl::Status status = Refresh(); !status.ok()) return status;
    const absl::StatusOr<StepSelector> with_mode = step.WithMode(recorded_best_modes());
    if (!with_mode.ok()) return with_mode.status();
    const std::unique_ptr<Catalog> catalog = NewCatalog();
    std::set<std::pair<int64_t, std::string>> tried;  // steps, with their attempts
    std::string reasons;
    // Once more after a step was deleted while it was tried: a newer one may be committed by then.
    for (bool anew = true; std::exchange(anew, false);) {
      const absl::StatusOr<std::vector<const StepInfo*>> chosen = with_mode->Choose(Steps());
      if (!chosen.ok() && tried.empty()) return chosen.status();
      if (!chosen.ok()) break;
      std::vector<int64_t> numbers;  // the pointers do not outlive a refresh
      for (const StepInfo* info : *chosen) numbers.push_back(info->step);
      for (const int64_t number : numbers) {
        absl::StatusOr<std::optional<storage::StepRecord>> record = catalog->Find(number);
        if (!record.ok()) return record.status();
        if (!record->has_value()) continue;
        const StepInfo& info = (*record)->info;
        if (!tried.emplace(number, info.attempt).second) continue;
        if (info.state != StepState::kCommitted) {
          reasons += fmt::format("\n  step {}: {}: {}", number, StepStateName(info.state), info.reason);
          continue;
        }
        absl::StatusOr<bool> held = catalog->Hold(**record);
        if (held.ok() && *held) {
          auto snapshot = OpenStoredSnapshot(catalog->source(), **record, entries, HalfPrecision::kNone,
                                             CompanionEntries::kByPatterns);
          if (snapshot.ok() || !MayTryAnother(snapshot.status())) return snapshot;
          reasons += fmt::format("\n  step {}: {}", number, std::string(snapshot.status().message()));
          // Without a lease its files may have been deleted while they were read.
          held = catalog->Hold(**record);
        }
        if (!held.ok()) return held.status();
        if (*held) continue;
        reasons += fmt::format("\n  step {}: it was deleted or replaced meanwhile", number);
        anew = true;
        break;
      }
    }
    return absl::DataLossError(fmt::format("{}: none of the selected steps of {} can be read:{}", step.ToString(),
                                           catalog->layout().directory(), reasons));
  });
}

}  // namespace tidemark
