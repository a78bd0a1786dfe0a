#include "snapshot/restore.h"

#include <algorithm>
#include <iterator>
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

// Reads a batch of entries into buffers and hands each to the state.
absl::Status ReceiveBatch(const storage::ShardReader& shard, std::span<const EntryMatch::Pair> batch,
                          const storage::ShardReadOptions& options, State& state) {
  std::vector<std::vector<std::byte>> buffers;
  std::vector<storage::EntryRead> reads;
  for (const EntryMatch::Pair& pair : batch) {
    buffers.emplace_back(shard.RawBytes(pair.saved));
    reads.push_back({.entry = pair.saved, .destination = buffers.back()});
  }
  if (absl::Status status = shard.Read(reads, options); !status.ok()) return status;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (absl::Status status = state.Receive(batch[i].entry, buffers[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(const storage::ShardReader& shard, std::span<const EntryMatch::Pair> pairs,
                        const storage::ShardReadOptions& options, State& state) {
  while (!pairs.empty()) {
    size_t count = 0;
    uint64_t batch_bytes = 0;
    do {
      batch_bytes += shard.RawBytes(pairs[count++].saved);
    } while (count < pairs.size() && batch_bytes + shard.RawBytes(pairs[count].saved) <= kBounceBytesMax);
    if (absl::Status status = ReceiveBatch(shard, pairs.first(count), options, state); !status.ok()) return status;
    pairs = pairs.subspan(count);
  }
  return absl::OkStatus();
}

// Values come before tensors: a state may refuse a checkpoint for one (the type of an optimizer), and no tensor may
// have been touched then.
absl::Status ReadPairs(const storage::ShardReader& shard, const std::vector<EntryMatch::Pair>& pairs,
                       const storage::ShardReadOptions& options, State& state, uint64_t* bytes) {
  std::vector<EntryMatch::Pair> values;
  std::vector<storage::EntryRead> direct;
  std::vector<EntryMatch::Pair> bounced;
  for (const EntryMatch::Pair& pair : pairs) {
    const State::Entry& entry = state.entries()[pair.entry];
    *bytes += shard.RawBytes(pair.saved);
    if (entry.spec.kind != EntryKind::kTensor) {
      values.push_back(pair);
    } else if (HasPlace(entry)) {
      direct.push_back({.entry = pair.saved, .destination = {entry.host, static_cast<size_t>(entry.bytes)}});
    } else {
      bounced.push_back(pair);
    }
  }
  if (absl::Status status = ReceiveAll(shard, values, options, state); !status.ok()) return status;
  if (absl::Status status = shard.Read(direct, options); !status.ok()) return status;
  return ReceiveAll(shard, bounced, options, state);
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

absl::StatusOr<RestoreReport> RestoreAttempt(const RestoreSource& source, const storage::StepRecord& record,
                                             State& state, const RestoreOptions& options) {
  absl::StatusOr<storage::Attempt> attempt = OpenRecorded(source, record);
  if (!attempt.ok()) return attempt.status();
  if (attempt->shards.size() != 1) {
    return absl::UnimplementedError(
        fmt::format("step {} was saved by {} ranks; this version restores what one rank saved", record.info.step,
                    attempt->shards.size()));
  }
  const storage::ShardReader& shard = *attempt->shards.front();
  const std::vector<EntrySpec> saved = RenamedSpecs(shard.index(), options);
  RestoreReport report{.step = record.info.step, .info = record.info};
  // What nobody wants must not make the state prepare for it.
  std::vector<EntrySpec> wanted;
  std::copy_if(saved.begin(), saved.end(), std::back_inserter(wanted),
               [&](const EntrySpec& spec) { return IsWanted(spec.name, options); });
  absl::Status status = state.PrepareRestore(wanted);
  absl::StatusOr<EntryMatch> match;
  if (status.ok()) {
    match = MatchEntries(shard.index(), saved, state, options);
    status = match.status();
  }
  if (status.ok()) status = ReadPairs(shard, match->pairs, source.read, state, &report.bytes);
  if (status.ok()) status = state.FinishRestore();
  if (!status.ok()) {
    state.AbandonRestore();
    return absl::Status(status.code(),
                        fmt::format("restore of step {}: {}", record.info.step, std::string(status.message())));
  }
  report.missing = std::move(match->missing);
  report.unexpected = std::move(match->unexpected);
  return report;
}

}  // namespace tidemark
