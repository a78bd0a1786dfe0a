#include "snapshot/restore/restore.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "snapshot/consumers/companions.h"
#include "snapshot/guarded.h"
#include "snapshot/ranks/replicated_entries.h"
#include "snapshot/restore/box_plan.h"
#include "snapshot/restore/destination_plan.h"
#include "snapshot/restore/entry_match.h"
#include "snapshot/restore/own_shard.h"
#include "snapshot/restore/saved_entries.h"
#include "snapshot/stopwatch.h"
#include "storage/io/exception_status.h"
#include "storage/shard/format/name_table.h"

namespace tidemark {
namespace {

// How often RestoreOptions::progress is called.
constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

using OnRead = std::function<void(uint64_t bytes)>;

// Of a tensor whether it can be read to where it is. One without bytes needs no place, and may have none.
bool HasPlace(const State::Entry& entry) { return entry.host != nullptr || entry.bytes == 0; }

// A failure to read the attempt's files, or what they hold.
RestoreResult ReadFailure(const absl::Status& status) {
  // Shards of a store whose format we know are not of a newer version, nor directories, unless they are broken.
  const bool is_damage = absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsUnimplemented(status) ||
                         absl::IsFailedPrecondition(status);
  return {.status = status, .cause = is_damage ? RestoreResult::Cause::kCheckpoint : RestoreResult::Cause::kDevice};
}

RestoreResult StateFailure(const absl::Status& status) {
  // Bytes that pass every checksum and yet are no value of their kind.
  if (absl::IsDataLoss(status)) return ReadFailure(status);
  return {.status = status, .cause = RestoreResult::Cause::kState};
}

// Reads a batch of entries into buffers and hands each to the state.
RestoreResult ReceiveBatch(const SavedEntries& saved, std::span<const EntryMatch::Pair> batch, const OnRead& on_read,
                           State& state) {
  std::vector<std::vector<std::byte>> buffers;
  std::vector<storage::EntryRead> reads;
  for (const EntryMatch::Pair& pair : batch) {
    try {
      buffers.emplace_back(saved.RawBytes(pair.saved));
    } catch (const std::bad_alloc&) {
      return {
          .status = absl::ResourceExhaustedError(fmt::format(
              "no memory for the {} bytes of '{}'", saved.RawBytes(pair.saved), state.entries()[pair.entry].spec.name)),
          .cause = RestoreResult::Cause::kDevice};
    }
    reads.push_back({.entry = pair.saved, .destination = buffers.back()});
  }
  if (absl::Status status = saved.Read(reads, on_read); !status.ok()) return ReadFailure(status);
  absl::Status status;
  for (size_t i = 0; i < batch.size() && status.ok(); ++i) {
    status = Guarded("State::Receive", [&] { return state.Receive(batch[i].entry, buffers[i]); });
  }
  // After a failure, too: a device may be reading the buffers.
  status.Update(Guarded("State::FlushReceived", [&] { return state.FlushReceived(); }));
  return status.ok() ? RestoreResult() : StateFailure(status);
}

// The same for any number of entries, in batches.
RestoreResult ReceiveAll(const SavedEntries& saved, const std::vector<EntryMatch::Pair>& pairs, const OnRead& on_read,
                         State& state) {
  RestoreResult result;
  for (size_t begin = 0; result.status.ok() && begin < pairs.size();) {
    size_t end = begin;
    uint64_t batch_bytes = 0;
    do {
      batch_bytes += saved.RawBytes(pairs[end++].saved);
    } while (end < pairs.size() && batch_bytes + saved.RawBytes(pairs[end].saved) <= kBounceBytesMax);
    result = ReceiveBatch(saved, {pairs.data() + begin, end - begin}, on_read, state);
    begin = end;
  }
  return result;
}

// Tells RestoreOptions::progress how far the tensors have been read. Not thread-safe. `options` is not owned.
class ProgressReport {
 public:
  ProgressReport(const RestoreOptions& options, int64_t step, uint64_t total)
      : options_(options), progress_{.step = step, .bytes_total = total} {}

  void Add(uint64_t bytes) {
    progress_.bytes_done += bytes;
    const bool is_last = progress_.bytes_done == progress_.bytes_total;
    if (!is_last && told_ && told_->elapsed() < kProgressInterval) return;
    told_.emplace();
    try {
      options_.progress(progress_);
    } catch (...) {
      thrown_ = storage::ExceptionStatus("RestoreOptions::progress");
      throw;
    }
  }

  // Of the function; the restore must not take it for a failure to read.
  const absl::Status& thrown() const { return thrown_; }

 private:
  const RestoreOptions& options_;
  RestoreProgress progress_;
  std::optional<Stopwatch> told_;  // since the last call
  absl::Status thrown_;
};

// What goes into one state, by the way in which it gets there.
struct Reads {
  State* state = nullptr;
  const Companion* companion = nullptr;    // whose state it is; null: the trainer's
  std::vector<EntryMatch::Pair> values;    // become visible when the restore is finished
  std::vector<EntryMatch::Pair> placed;    // tensors that are in host memory
  std::vector<storage::EntryRead> direct;  // the same into their place, each byte of that once: PlanPlaced
  std::vector<EntryMatch::Pair> bounced;   // tensors, by way of our memory
  std::vector<std::string> tensors;        // the names of both
};

Reads SortPairs(const std::vector<EntryMatch::Pair>& pairs, State& state, const Companion* companion) {
  Reads reads{.state = &state, .companion = companion};
  reads.tensors.reserve(pairs.size());
  reads.placed.reserve(pairs.size());
  for (const EntryMatch::Pair& pair : pairs) {
    const State::Entry& entry = state.entries()[pair.entry];
    if (entry.spec.kind != EntryKind::kTensor) {
      reads.values.push_back(pair);
      continue;
    }
    reads.tensors.push_back(entry.spec.name);
    (HasPlace(entry) ? reads.placed : reads.bounced).push_back(pair);
  }
  return reads;
}

// Sets `direct` of all, because their tensors may share memory. Reads from the step, and writes nothing.
RestoreResult PlanPlaced(const SavedEntries& saved, std::vector<Reads>& all) {
  std::vector<Destination> destinations;
  std::vector<Reads*> owners;
  size_t count = 0;
  for (const Reads& reads : all) count += reads.placed.size();
  destinations.reserve(count);
  owners.reserve(count);
  for (Reads& reads : all) {
    reads.direct.reserve(reads.placed.size());
    for (const EntryMatch::Pair& pair : reads.placed) {
      const State::Entry& entry = reads.state->entries()[pair.entry];
      destinations.push_back(
          {.saved = pair.saved, .memory = {entry.host, static_cast<size_t>(entry.bytes)}, .name = entry.spec.name});
      owners.push_back(&reads);
    }
  }
  const auto planned = PlanDestinations(saved, destinations, kBounceBytesMax);
  if (absl::IsInvalidArgument(planned.status())) return StateFailure(planned.status());
  if (!planned.ok()) return ReadFailure(planned.status());
  for (const DestinationRead& read : *planned) owners[read.destination]->direct.push_back(read.read);
  return {};
}

RestoreResult OfOwner(RestoreResult result, const Reads& reads) {
  if (reads.companion != nullptr) result.status = OfCompanion(result.status, *reads.companion);
  return result;
}

RestoreResult ReadValues(const SavedEntries& saved, const Reads& reads) {
  return OfOwner(ReceiveAll(saved, reads.values, nullptr, *reads.state), reads);
}

RestoreResult ReadTensors(const SavedEntries& saved, const Reads& reads, const OnRead& on_read) {
  if (absl::Status status = saved.Read(reads.direct, on_read); !status.ok()) {
    return OfOwner(ReadFailure(status), reads);
  }
  return OfOwner(ReceiveAll(saved, reads.bounced, on_read, *reads.state), reads);
}

// A companion that is restored with the state, as if it were the only thing to restore.
struct CompanionRestore {
  Companion* companion;
  EntryMatch match;
};

// What one restore does.
struct RestorePlan {
  EntryMatch match;
  std::vector<CompanionRestore> companions;
  std::vector<Companion*> reset;
};

// The checkpoint's entries under the names that the companion knows them by. A rename that leads out of its prefix
// gives the state a copy, and takes nothing from the companion.
std::vector<EntrySpec> SpecsOfCompanion(const storage::ShardIndex& index, std::string_view prefix,
                                        const RestoreOptions& options) {
  std::vector<EntrySpec> specs = RenamedSpecs(index, options);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!IsUnderPrefix(specs[i].name, prefix)) specs[i].name = index.entries[i].spec.name;
  }
  return specs;
}

// The part of a companion's restore that only looks. `others` learns of what goes into it.
absl::Status PrepareCompanion(const storage::ShardIndex& index, Companion& companion, const RestoreOptions& options,
                              RestorePlan& plan, OtherEntries& others) {
  const std::vector<EntrySpec> saved = SpecsOfCompanion(index, companion.prefix(), options);
  const std::vector<bool> replaced = FindReplaced(index, saved);
  std::vector<EntrySpec> own;
  std::vector<std::string> names;
  bool all_wanted = true;
  for (size_t i = 0; i < saved.size(); ++i) {
    if (replaced[i] || !IsUnderPrefix(saved[i].name, companion.prefix())) continue;
    own.push_back(saved[i]);
    names.push_back(saved[i].name);
    all_wanted = all_wanted && IsWanted(saved[i].name, options);
  }
  if (own.empty()) {
    if (options.only.empty()) plan.reset.push_back(&companion);
    return absl::OkStatus();
  }
  if (!all_wanted) return absl::OkStatus();
  plan.companions.push_back({.companion = &companion});
  absl::Status prepared = Guarded("State::PrepareRestore", [&] { return companion.state().PrepareRestore(own); });
  if (!prepared.ok()) return prepared;
  const RestoreOptions everything{.only = {companion.prefix() + ".*"}, .allow_missing = options.allow_missing};
  absl::StatusOr<EntryMatch> match = MatchEntries(index, saved, companion.state(), everything);
  if (!match.ok()) return match.status();
  for (const std::string& name : match->unexpected) {
    if (!IsUnderPrefix(name, companion.prefix()) || options.allow_unexpected) continue;
    return absl::InvalidArgumentError(fmt::format("unexpected in the checkpoint: '{}'", name));
  }
  for (size_t i = 0; i < saved.size(); ++i) {
    if (IsUnderPrefix(saved[i].name, companion.prefix())) others.is_companions[i] = true;
  }
  others.restored.insert(others.restored.end(), names.begin(), names.end());
  plan.companions.back().match = *std::move(match);
  return absl::OkStatus();
}

// Boxes of the state are read as entries of their own.
void AddBoxes(const State& state, EntryMatch& match, SavedEntries& checkpoint) {
  for (EntryMatch::Pair& pair : match.pairs) {
    const EntrySpec& wanted = state.entries()[pair.entry].spec;
    if (!wanted.whole()) pair.saved = checkpoint.AddBox(pair.saved, HeldBox(wanted));
  }
}

// The part of a restore that only looks.
absl::Status Prepare(SavedEntries& checkpoint, std::span<const std::shared_ptr<Companion>> companions, State& state,
                     const RestoreOptions& options, RestorePlan& plan) {
  const storage::ShardIndex& index = checkpoint.index();
  OtherEntries others{.is_companions = std::vector<bool>(index.entries.size(), false), .reads_boxes = true};
  const std::vector<std::string> prefixes = CompanionPrefixes(index.properties);
  for (size_t i = 0; i < index.entries.size(); ++i) {
    others.is_companions[i] = std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
      return IsUnderPrefix(index.entries[i].spec.name, prefix);
    });
  }
  for (const auto& companion : companions) {
    const absl::Status status = PrepareCompanion(index, *companion, options, plan, others);
    if (!status.ok()) return OfCompanion(status, *companion);
  }
  const std::vector<EntrySpec> saved = RenamedSpecs(index, options);
  const std::vector<bool> replaced = FindReplaced(index, saved);
  // What nobody wants must not make the state prepare for it.
  const bool is_all_wanted = options.only.empty() && options.renames.empty();
  std::vector<EntrySpec> wanted;
  for (size_t i = 0; i < saved.size() && !is_all_wanted; ++i) {
    if (!replaced[i] && IsWanted(saved[i].name, options)) wanted.push_back(saved[i]);
  }
  const std::span<const EntrySpec> offered(is_all_wanted ? saved.data() : wanted.data(),
                                           is_all_wanted ? saved.size() : wanted.size());
  absl::Status prepared = Guarded("State::PrepareRestore", [&] { return state.PrepareRestore(offered); });
  if (!prepared.ok()) return prepared;
  absl::StatusOr<EntryMatch> match = MatchEntries(index, saved, state, options, others);
  if (!match.ok()) return match.status();
  plan.match = *std::move(match);
  storage::NameSet restored;
  for (const std::string& name : others.restored) restored.Add(name);
  std::erase_if(plan.match.unexpected, [&](const std::string& name) { return restored.Contains(name); });
  AddBoxes(state, plan.match, checkpoint);  // the last of all, for it changes the index
  return absl::OkStatus();
}

uint64_t BytesOf(const SavedEntries& saved, const std::vector<EntryMatch::Pair>& pairs) {
  uint64_t bytes = 0;
  for (const EntryMatch::Pair& pair : pairs) bytes += saved.RawBytes(pair.saved);
  return bytes;
}

// An entry that the ranks have not saved as a whole was never right. So its step is not marked as damaged.
RestoreResult CheckAreThere(const SavedEntries& saved, const RestorePlan& plan) {
  absl::Status status;
  for (const EntryMatch::Pair& pair : plan.match.pairs) status.Update(saved.Check(pair.saved));
  for (const CompanionRestore& restore : plan.companions) {
    for (const EntryMatch::Pair& pair : restore.match.pairs) status.Update(saved.Check(pair.saved));
  }
  if (status.ok()) return {};
  return {.status = status, .cause = RestoreResult::Cause::kState};
}

// All values first: a state, or a companion's, may refuse one (a generator of another kind, other parameter groups).
// Then the tensors that share memory. No tensor is touched until both are known to fit.
RestoreResult ReadPlan(const SavedEntries& saved, State& state, const RestorePlan& plan, const RestoreOptions& wanted,
                       int64_t step) {
  std::vector<Reads> all;
  all.push_back(SortPairs(plan.match.pairs, state, nullptr));
  uint64_t bytes = BytesOf(saved, plan.match.pairs);
  for (const CompanionRestore& restore : plan.companions) {
    all.push_back(SortPairs(restore.match.pairs, restore.companion->state(), restore.companion));
    bytes += BytesOf(saved, restore.match.pairs);
  }
  RestoreResult result = CheckAreThere(saved, plan);
  if (!result.status.ok()) return result;
  for (const Reads& reads : all) {
    result = ReadValues(saved, reads);
    if (!result.status.ok()) return result;
  }
  result = PlanPlaced(saved, all);
  if (!result.status.ok()) return result;
  uint64_t total = 0;
  for (const Reads& reads : all) {
    for (const storage::EntryRead& read : reads.direct) total += read.destination.size();
    total += BytesOf(saved, reads.bounced);
  }
  ProgressReport progress(wanted, step, total);
  OnRead on_read;
  if (wanted.progress) on_read = [&progress](uint64_t read) { progress.Add(read); };
  for (size_t i = 0; i < all.size() && result.status.ok(); ++i) result = ReadTensors(saved, all[i], on_read);
  if (!progress.thrown().ok()) result = StateFailure(progress.thrown());
  result.written = std::move(all.front().tensors);
  for (const EntryMatch::Pair& pair : all.front().values) {
    result.values.push_back(state.entries()[pair.entry].spec.name);
  }
  result.report.bytes = bytes;
  return result;
}

absl::Status Finish(State& state, const RestorePlan& plan) {
  const auto finish = [](State& one) { return Guarded("State::FinishRestore", [&] { return one.FinishRestore(); }); };
  if (absl::Status status = finish(state); !status.ok()) return status;
  for (const CompanionRestore& restore : plan.companions) {
    const absl::Status status = finish(restore.companion->state());
    if (!status.ok()) return OfCompanion(status, *restore.companion);
  }
  for (Companion* companion : plan.reset) {
    const absl::Status status = Guarded("Companion::Reset", [&] { companion->Reset(); });
    if (!status.ok()) return OfCompanion(status, *companion);
  }
  return absl::OkStatus();
}

// Adds errors that occur while the restore is abandoned to the restore's error.
void Abandon(State& state, const RestorePlan& plan, absl::Status& failure) {
  const auto abandon = [&](State& one) {
    const absl::Status status = Guarded("State::AbandonRestore", [&] { one.AbandonRestore(); });
    if (status.ok()) return;
    failure = absl::Status(failure.code(),
                           fmt::format("{}; {}", std::string(failure.message()), std::string(status.message())));
  };
  abandon(state);
  for (const CompanionRestore& restore : plan.companions) abandon(restore.companion->state());
}

// `own`: only if the state wants just what this shard has; nullopt: it does not, or does not fit, and nothing was
// written.
std::optional<RestoreResult> RestoreEntries(SavedEntries& saved, const RestoreSource& source, State& state,
                                            const RestoreOptions& options, int64_t step,
                                            const storage::ShardIndex* own = nullptr) {
  RestorePlan plan;
  RestoreResult result;
  // The save that reads it may be another checkpointer's.
  state.AwaitStaging();
  // Guarded: after an exception, too, the state must forget what was set aside.
  bool is_wanted = true;
  absl::Status prepared = Guarded("restore", [&] {
    absl::Status status = Prepare(saved, source.companions, state, options, plan);
    if (status.ok() && own != nullptr) is_wanted = HasAsMuch(state, *own) && CheckAreThere(saved, plan).status.ok();
    return status;
  });
  if (!prepared.ok() || !is_wanted) {
    Abandon(state, plan, prepared);
    if (own != nullptr) return std::nullopt;
    return RestoreResult{.status = prepared, .cause = RestoreResult::Cause::kState};
  }
  const absl::Status ended = Guarded("restore", [&] { result = ReadPlan(saved, state, plan, options, step); });
  if (!ended.ok()) result = {.status = ended, .cause = RestoreResult::Cause::kState};
  if (result.status.ok()) {
    result.status = Finish(state, plan);
    if (!result.status.ok()) result.cause = RestoreResult::Cause::kState;
  }
  if (!result.status.ok()) {
    Abandon(state, plan, result.status);
    return result;
  }
  result.report.missing = std::move(plan.match.missing);
  result.report.unexpected = std::move(plan.match.unexpected);
  for (const Companion* companion : plan.reset) result.reset.push_back(companion->prefix());
  return result;
}

// nullopt: it is not enough, or the job has another number of ranks, or only one: all shards are read then.
// Nothing was written then. A shard that cannot be read is damage of the step, even if another rank has saved the same
// entries: its values need not be this rank's.
std::optional<RestoreResult> RestoreOwnShard(const RestoreSource& source, const storage::StepRecord& record,
                                             State& state, const RestoreOptions& options) {
  if (source.ranks == nullptr || source.ranks->world_size == 1 ||
      record.info.world_size != static_cast<uint32_t>(source.ranks->world_size)) {
    return std::nullopt;
  }
  absl::StatusOr<storage::Attempt> attempt = OpenOwnShard(source, record);
  if (!attempt.ok()) return ReadFailure(attempt.status());  // all shards would be needed, this one too
  const storage::ShardIndex& index = attempt->shards.front()->index();
  if (index.properties.contains(std::string(kReplicatedProperty))) return std::nullopt;
  const std::unique_ptr<SavedEntries> saved = EntriesOf(*std::move(attempt), source.read);
  return RestoreEntries(*saved, source, state, options, record.info.step, &index);
}

RestoreResult RestoreAllShards(const RestoreSource& source, const storage::StepRecord& record, State& state,
                               const RestoreOptions& options) {
  absl::StatusOr<storage::Attempt> attempt = OpenRecorded(source, record);
  if (!attempt.ok()) return ReadFailure(attempt.status());
  const std::unique_ptr<SavedEntries> saved = EntriesOf(*std::move(attempt), source.read);
  return *RestoreEntries(*saved, source, state, options, record.info.step);
}

}  // namespace

absl::StatusOr<storage::Attempt> OpenRecorded(const RestoreSource& source, const storage::StepRecord& record) {
  const auto id = storage::FromHex(record.info.attempt);
  if (!id) return absl::NotFoundError(fmt::format("step {} has no attempt", record.info.step));
  const storage::StepFolder folder{record.info.step, storage::AttemptId{*id}};
  absl::StatusOr<storage::Attempt> attempt = storage::ReadAttempt(source.files, source.layout, source.store, folder);
  if (!attempt.ok()) return attempt.status();
  absl::Status status =
      storage::CheckShards(attempt->record, record, source.layout.attempt(folder.step, folder.attempt));
  if (!status.ok()) return status;
  return attempt;
}

RestoreResult RestoreAttempt(const RestoreSource& source, const storage::StepRecord& record, State& state,
                             const RestoreOptions& options) {
  const std::optional<RestoreResult> own = RestoreOwnShard(source, record, state, options);
  RestoreResult result = own ? *own : RestoreAllShards(source, record, state, options);
  if (!result.status.ok()) {
    result.status = absl::Status(result.status.code(), fmt::format("restore of step {}: {}", record.info.step,
                                                                   std::string(result.status.message())));
    return result;
  }
  result.report.step = record.info.step;
  result.report.info = record.info;
  return result;
}

}  // namespace tidemark
