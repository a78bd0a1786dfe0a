#include "tests/real/step_oracle.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_journal.h"
#include "storage/store/store_layout.h"
#include "tests/real/versioned_state.h"

namespace tidemark {
namespace {

std::string Text(const absl::Status& status) { return status.ToString(); }

// The state as the reader finds it, by the names that VersionedState gives its entries.
absl::Status ReadInto(const StoreReader& reader, int64_t step, VersionedState& into) {
  State& state = into.state();
  if (absl::Status status = state.Refresh(); !status.ok()) return status;
  for (size_t i = 0; i < state.entries().size(); ++i) {
    absl::StatusOr<std::vector<std::byte>> bytes = reader.ReadEntry(step, state.entries()[i].spec.name);
    if (!bytes.ok()) return bytes.status();
    if (state.entries()[i].host == nullptr || state.entries()[i].spec.kind != EntryKind::kTensor) {
      if (absl::Status status = state.Receive(i, *bytes); !status.ok()) return status;
      continue;
    }
    if (bytes->size() != state.entries()[i].bytes) return absl::DataLossError("an entry of another size");
    std::memcpy(state.entries()[i].host, bytes->data(), bytes->size());
  }
  return state.FinishRestore();
}

// Attempts' folders in steps/ that no record names, and that were not replaced or deleted, for which the store removes
// them when nothing refers to them any more.
void CheckFolders(const std::string& directory, const std::map<int64_t, StepInfo>& infos,
                  std::vector<std::string>* wrong) {
  std::set<std::string> known;
  for (const auto& [step, info] : infos) known.insert(info.attempt);
  storage::FileSystem& files = storage::PosixFileSystem();
  const storage::StoreLayout layout(directory);
  const auto store = storage::ReadStoreIdentity(files, layout);
  if (!store.ok()) return wrong->push_back(Text(store.status()));
  const auto journal = storage::StoreJournal::Open(files, layout, *store, {.warn = [](std::string_view) {}});
  if (!journal.ok()) return wrong->push_back(Text(journal.status()));
  const auto deletions = (*journal)->catalog().Deletions();
  if (!deletions.ok()) return wrong->push_back(Text(deletions.status()));
  for (const storage::DeletionRecord& deletion : *deletions) known.insert(storage::ToHex(deletion.attempt.bytes));
  for (const auto& folder : std::filesystem::directory_iterator(directory + "/steps")) {
    const std::string name = folder.path().filename();
    const size_t dash = name.find('-');
    if (dash == std::string::npos || !known.contains(name.substr(dash + 1))) {
      wrong->push_back(fmt::format("{} is left in steps/, and no record names it", name));
    }
  }
}

}  // namespace

RetentionOptions StepOracle::Rules() { return {.max_to_keep = kMaxToKeep, .keep_best = {{.metric = "loss"}}}; }

void StepOracle::Begun(int64_t step, int64_t version, double loss) {
  absl::MutexLock lock(&mutex_);
  steps_[step].push_back({.version = version, .loss = loss, .score = std::nullopt, .new_scores = {}});
  step_of_version_[version] = step;
  last_version_ = std::max(last_version_, version);
  last_step_ = std::max(last_step_, step);
}

StepOracle::Attempt* StepOracle::Find(int64_t version) {
  for (Attempt& attempt : steps_[step_of_version_.at(version)]) {
    if (attempt.version == version) return &attempt;
  }
  return nullptr;
}

void StepOracle::Committed(int64_t version) {
  absl::MutexLock lock(&mutex_);
  ++acknowledged_;
  if (Attempt* attempt = Find(version)) attempt->acknowledged = true;
}

void StepOracle::Reporting(int64_t version, double score) {
  absl::MutexLock lock(&mutex_);
  if (Attempt* attempt = Find(version)) attempt->new_scores.push_back(score);
}

void StepOracle::Reported(int64_t version, double score) {
  absl::MutexLock lock(&mutex_);
  Attempt* attempt = Find(version);
  if (attempt == nullptr) return;
  attempt->score = score;
  attempt->new_scores.clear();
}

void StepOracle::Pinning(int64_t step) {
  absl::MutexLock lock(&mutex_);
  pins_[step] = std::nullopt;
}

void StepOracle::Pinned(int64_t step, bool pinned) {
  absl::MutexLock lock(&mutex_);
  pins_[step] = pinned;
}

const StepOracle::Attempt* StepOracle::LastAcknowledged(const Attempts& attempts) {
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    if (attempt->acknowledged) return &*attempt;
  }
  return nullptr;
}

std::vector<StepOracle::Attempt> StepOracle::Possible(const Attempts& attempts) {
  const Attempt* last = LastAcknowledged(attempts);
  std::vector<Attempt> possible;
  for (const Attempt& attempt : attempts) {
    if (last == nullptr || attempt.version >= last->version) possible.push_back(attempt);
  }
  return possible;
}

// Whether no other step can have, or had, a lower loss, be it what it may that was committed.
bool StepOracle::IsBest(int64_t step) const {
  double own = -std::numeric_limits<double>::infinity();
  double others = std::numeric_limits<double>::infinity();
  for (const auto& [number, attempts] : steps_) {
    for (const Attempt& attempt : number == step ? Possible(attempts) : attempts) {
      if (number == step) own = std::max(own, attempt.loss);
      if (number != step) others = std::min(others, attempt.loss);
    }
  }
  return own < others;
}

// Versions grow in the order of commits, so those that may have been committed behind it are those with higher ones.
bool StepOracle::MayBeGone(int64_t step) const {
  const auto pin = pins_.find(step);
  if (pin != pins_.end() && pin->second == true) return false;
  const Attempt* last = LastAcknowledged(steps_.at(step));
  int64_t later = 0;
  bool is_highest = true;
  for (const auto& [number, attempts] : steps_) {
    if (number == step || attempts.empty()) continue;
    if (attempts.back().version > last->version) ++later;
    if (number > step) is_highest = false;
  }
  return later >= kMaxToKeep && !is_highest && !IsBest(step);
}

std::string StepOracle::CheckInfo(const StepInfo& info, int64_t version) const {
  const auto step = steps_.find(info.step);
  if (step == steps_.end()) return "was never begun";
  for (const Attempt& attempt : Possible(step->second)) {
    if (attempt.version != version) continue;
    const auto loss = info.metrics.find("loss");
    if (loss == info.metrics.end() || loss->second != attempt.loss) return "has another loss than it was saved with";
    const auto found = info.metrics.find("late/score");
    const std::optional<double> score = found != info.metrics.end() ? std::optional(found->second) : std::nullopt;
    const auto& possible = attempt.new_scores;
    if (score != attempt.score && (!score || std::find(possible.begin(), possible.end(), *score) == possible.end())) {
      return attempt.score ? "has lost a report that was acknowledged" : "has a report that was never made";
    }
    const auto pin = pins_.find(info.step);
    if (pin != pins_.end() && pin->second && info.pinned != *pin->second) {
      return info.pinned ? "is pinned, and was deleted" : "is not pinned any more";
    }
    return "";
  }
  const Attempt* last = LastAcknowledged(step->second);
  return fmt::format("is of version {}, and version {} of it was acknowledged", version,
                     last != nullptr ? last->version : 0);
}

void StepOracle::CheckAbsent(const std::map<int64_t, StepInfo>& infos, std::vector<std::string>* wrong) const {
  for (const auto& [step, attempts] : steps_) {
    if (LastAcknowledged(attempts) == nullptr) continue;
    ++checked_;
    const auto info = infos.find(step);
    const bool committed = info != infos.end() && info->second.state == StepState::kCommitted;
    if (committed || MayBeGone(step)) continue;
    wrong->push_back(fmt::format("step {} was acknowledged and is {}", step,
                                 info == infos.end() ? "unknown" : StepStateName(info->second.state)));
  }
}

std::vector<std::string> StepOracle::CheckOpened(AsyncCheckpointer& checkpointer, const std::string& directory) {
  const absl::StatusOr<std::vector<StepInfo>> steps = checkpointer.Steps();
  if (!steps.ok()) return {fmt::format("the steps cannot be listed: {}", Text(steps.status()))};
  std::vector<std::string> wrong;
  std::map<int64_t, StepInfo> infos;
  std::map<int64_t, Attempts> found;
  uint64_t found_unacknowledged = 0;
  absl::MutexLock lock(&mutex_);
  for (const StepInfo& info : *steps) {
    infos[info.step] = info;
    if (info.state == StepState::kLost || info.state == StepState::kDamaged) {
      wrong.push_back(fmt::format("step {} is {}: {}", info.step, StepStateName(info.state), info.reason));
    }
    if (const auto pin = pins_.find(info.step); pin != pins_.end() && !pin->second) pin->second = info.pinned;
    if (info.state != StepState::kCommitted) continue;
    VersionedState restored;
    if (auto report = checkpointer.Restore(info.step, restored.state()); !report.ok()) {
      wrong.push_back(fmt::format("step {} does not restore: {}", info.step, Text(report.status())));
      continue;
    }
    if (!restored.IsThatOf(info.step, restored.version())) {
      wrong.push_back(fmt::format("step {} restores with wrong bytes", info.step));
    } else if (const std::string why = CheckInfo(info, restored.version()); !why.empty()) {
      wrong.push_back(fmt::format("step {} {}", info.step, why));
    }
    for (Attempt attempt : steps_[info.step]) {
      if (attempt.version != restored.version()) continue;
      if (!attempt.acknowledged) ++found_unacknowledged;
      attempt.acknowledged = true;
      const auto score = info.metrics.find("late/score");
      attempt.score = score != info.metrics.end() ? std::optional(score->second) : std::nullopt;
      attempt.new_scores.clear();
      found[info.step].push_back(attempt);
    }
  }
  CheckAbsent(infos, &wrong);
  if (absl::Status tidied = checkpointer.Tidy(); !tidied.ok()) wrong.push_back("tidying up: " + Text(tidied));
  CheckFolders(directory, infos, &wrong);
  const absl::StatusOr<StepInfo> latest = checkpointer.LatestStep();
  for (const auto& [step, attempts] : steps_) {
    if (LastAcknowledged(attempts) != nullptr && (!latest.ok() || latest->step < step)) {
      wrong.push_back(fmt::format("the latest step is {}, and step {} was acknowledged",
                                  latest.ok() ? std::to_string(latest->step) : Text(latest.status()), step));
    }
  }
  for (const auto& [step, attempts] : steps_) {
    for (const Attempt& attempt : attempts) {
      if (!attempt.acknowledged) ++vanished_;
    }
  }
  found_ += found_unacknowledged;
  vanished_ -= found_unacknowledged;
  steps_ = std::move(found);
  return wrong;
}

std::vector<std::string> StepOracle::CheckUnopened(const StoreReader& reader) const {
  std::vector<std::string> wrong;
  if (!reader.journal_problem().ok()) {
    wrong.push_back(fmt::format("the journal cannot be read: {}", Text(reader.journal_problem())));
  }
  absl::MutexLock lock(&mutex_);
  std::map<int64_t, StepInfo> infos;
  for (const StepInfo& info : reader.Steps()) {
    infos[info.step] = info;
    if (info.state != StepState::kCommitted) continue;
    VersionedState restored;
    if (absl::Status status = ReadInto(reader, info.step, restored); !status.ok()) {
      wrong.push_back(fmt::format("step {} cannot be read: {}", info.step, Text(status)));
    } else if (!restored.IsThatOf(info.step, restored.version())) {
      wrong.push_back(fmt::format("step {} is read with wrong bytes", info.step));
    } else if (const std::string why = CheckInfo(info, restored.version()); !why.empty()) {
      wrong.push_back(fmt::format("step {} {}", info.step, why));
    }
  }
  CheckAbsent(infos, &wrong);
  return wrong;
}

std::vector<std::string> StepOracle::CheckRestored(int64_t step, int64_t version) const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> wrong;
  for (const auto& [number, attempts] : steps_) {
    if (number > step && LastAcknowledged(attempts) != nullptr) {
      wrong.push_back(fmt::format("step {} was restored, and step {} was acknowledged", step, number));
    }
  }
  const auto restored = steps_.find(step);
  const std::vector<Attempt> possible = restored == steps_.end() ? Attempts() : Possible(restored->second);
  if (std::none_of(possible.begin(), possible.end(), [&](const Attempt& a) { return a.version == version; })) {
    wrong.push_back(fmt::format("version {} of step {} was restored, which cannot be there", version, step));
  }
  return wrong;
}

int64_t StepOracle::next_version() const {
  absl::MutexLock lock(&mutex_);
  return last_version_ + 1;
}

int64_t StepOracle::next_step() const {
  absl::MutexLock lock(&mutex_);
  return last_step_ + 1;
}

uint64_t StepOracle::acknowledged() const {
  absl::MutexLock lock(&mutex_);
  return acknowledged_;
}

uint64_t StepOracle::found() const {
  absl::MutexLock lock(&mutex_);
  return found_;
}

uint64_t StepOracle::vanished() const {
  absl::MutexLock lock(&mutex_);
  return vanished_;
}

uint64_t StepOracle::checked() const {
  absl::MutexLock lock(&mutex_);
  return checked_;
}

}  // namespace tidemark
