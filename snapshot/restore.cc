#include "snapshot/restore.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/entry_match.h"

namespace tidemark {
namespace {

// Entries that cannot be decoded into their place pass through memory of our own, this many bytes at a time, so that a
// state on a device is never doubled on the host.
constexpr uint64_t kBounceBytesMax = 256 << 20;

bool HasPlace(const State::Entry& entry) { return entry.spec.kind == EntryKind::kTensor && entry.host != nullptr; }

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
RestoreResult ReceiveBatch(const storage::ShardReader& shard, std::span<const EntryMatch::Pair> batch,
                           const storage::ShardReadOptions& options, State& state) {
  std::vector<std::vector<std::byte>> buffers;
  std::vector<storage::EntryRead> reads;
  for (const EntryMatch::Pair& pair : batch) {
    try {
      buffers.emplace_back(shard.RawBytes(pair.saved));
    } catch (const std::bad_alloc&) {
      return {
          .status = absl::ResourceExhaustedError(fmt::format(
              "no memory for the {} bytes of '{}'", shard.RawBytes(pair.saved), state.entries()[pair.entry].spec.name)),
          .cause = RestoreResult::Cause::kDevice};
    }
    reads.push_back({.entry = pair.saved, .destination = buffers.back()});
  }
  if (absl::Status status = shard.Read(reads, options); !status.ok()) return ReadFailure(status);
  absl::Status status;
  for (size_t i = 0; i < batch.size() && status.ok(); ++i) status = state.Receive(batch[i].entry, buffers[i]);
  // After a failure, too: a device may be reading the buffers.
  status.Update(state.FlushReceived());
  return status.ok() ? RestoreResult() : StateFailure(status);
}

// The same for any number of entries, in batches.
RestoreResult ReceiveAll(const storage::ShardReader& shard, const std::vector<EntryMatch::Pair>& pairs,
                         const storage::ShardReadOptions& options, State& state) {
  RestoreResult result;
  for (size_t begin = 0; result.status.ok() && begin < pairs.size();) {
    size_t end = begin;
    uint64_t batch_bytes = 0;
    do {
      batch_bytes += shard.RawBytes(pairs[end++].saved);
    } while (end < pairs.size() && batch_bytes + shard.RawBytes(pairs[end].saved) <= kBounceBytesMax);
    result = ReceiveBatch(shard, {pairs.data() + begin, end - begin}, options, state);
    begin = end;
  }
  return result;
}

// `written` and the report's bytes are filled in; the rest is the outcome.
RestoreResult ReadPairs(const storage::ShardReader& shard, const std::vector<EntryMatch::Pair>& pairs,
                        const storage::ShardReadOptions& options, State& state) {
  std::vector<storage::EntryRead> direct;
  std::vector<EntryMatch::Pair> bounced;
  std::vector<EntryMatch::Pair> values;
  std::vector<std::string> tensors;
  uint64_t bytes = 0;
  for (const EntryMatch::Pair& pair : pairs) {
    const State::Entry& entry = state.entries()[pair.entry];
    bytes += shard.RawBytes(pair.saved);
    if (entry.spec.kind != EntryKind::kTensor) {
      values.push_back(pair);
      continue;
    }
    tensors.push_back(entry.spec.name);
    if (HasPlace(entry)) {
      direct.push_back({.entry = pair.saved, .destination = {entry.host, static_cast<size_t>(entry.bytes)}});
    } else {
      bounced.push_back(pair);
    }
  }
  // Values first: a state may refuse one (a generator of another kind, other parameter groups), and then no tensor has
  // been touched.
  RestoreResult result = ReceiveAll(shard, values, options, state);
  if (!result.status.ok()) return result;
  if (absl::Status status = shard.Read(direct, options); !status.ok()) result = ReadFailure(status);
  if (result.status.ok()) result = ReceiveAll(shard, bounced, options, state);
  result.written = std::move(tensors);
  result.report.bytes = bytes;
  return result;
}

// The part of a restore that only looks.
absl::StatusOr<EntryMatch> Prepare(const storage::ShardReader& shard, State& state, const RestoreOptions& options) {
  const std::vector<EntrySpec> saved = RenamedSpecs(shard.index(), options);
  // What nobody wants must not make the state prepare for it.
  std::vector<EntrySpec> wanted;
  std::copy_if(saved.begin(), saved.end(), std::back_inserter(wanted),
               [&](const EntrySpec& spec) { return IsWanted(spec.name, options); });
  if (absl::Status status = state.PrepareRestore(wanted); !status.ok()) return status;
  return MatchEntries(shard.index(), saved, state, options);
}

RestoreResult RestoreShard(const storage::ShardReader& shard, const storage::ShardReadOptions& read, State& state,
                           const RestoreOptions& options) {
  absl::StatusOr<EntryMatch> match = Prepare(shard, state, options);
  if (!match.ok()) return {.status = match.status(), .cause = RestoreResult::Cause::kState};
  RestoreResult result = ReadPairs(shard, match->pairs, read, state);
  if (!result.status.ok()) return result;
  if (absl::Status status = state.FinishRestore(); !status.ok()) {
    result.status = status;
    result.cause = RestoreResult::Cause::kState;
    return result;
  }
  result.report.missing = std::move(match->missing);
  result.report.unexpected = std::move(match->unexpected);
  return result;
}

}  // namespace

absl::StatusOr<storage::Attempt> OpenRecorded(const RestoreSource& source, const storage::StepRecord& record) {
  const auto id = storage::FromHex(record.info.attempt);
  if (!id) return absl::NotFoundError(fmt::format("step {} has no attempt", record.info.step));
  const storage::StepFolder folder{record.info.step, storage::AttemptId{*id}};
  absl::StatusOr<storage::Attempt> attempt = storage::ReadAttempt(source.files, source.layout, source.store, folder);
  if (!attempt.ok()) return attempt.status();
  if (attempt->record.shards != record.shards) {
    return absl::DataLossError(fmt::format("{}: its shards are not the ones that were committed: size or digest differ",
                                           source.layout.attempt(folder.step, folder.attempt)));
  }
  return attempt;
}

RestoreResult RestoreAttempt(const RestoreSource& source, const storage::StepRecord& record, State& state,
                             const RestoreOptions& options) {
  absl::StatusOr<storage::Attempt> attempt = OpenRecorded(source, record);
  if (!attempt.ok()) return ReadFailure(attempt.status());
  if (attempt->shards.size() != 1) {
    return {.status = absl::UnimplementedError(
                fmt::format("step {} was saved by {} ranks; this version restores what one rank saved",
                            record.info.step, attempt->shards.size())),
            .cause = RestoreResult::Cause::kState};
  }
  RestoreResult result = RestoreShard(*attempt->shards.front(), source.read, state, options);
  if (!result.status.ok()) {
    state.AbandonRestore();
    result.status = absl::Status(result.status.code(), fmt::format("restore of step {}: {}", record.info.step,
                                                                   std::string(result.status.message())));
    return result;
  }
  result.report.step = record.info.step;
  result.report.info = record.info;
  return result;
}

}  // namespace tidemark
