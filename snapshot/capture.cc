#include "tidemark/capture.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "snapshot/restore/destination_plan.h"
#include "snapshot/restore/entry_match.h"
#include "snapshot/staging/available_memory.h"
#include "snapshot/staging/stager.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark {
namespace {

// Of tensors that share a part of their memory, so many bytes are compared at a time.
constexpr uint64_t kComparedBytesMax = 2 << 20;

// The entries as a shard would list them. With `digests` each has one chunk of all its bytes, so that entries can be
// compared.
storage::ShardIndex IndexOf(const Snapshot& snapshot, bool digests) {
  storage::ShardIndex index;
  for (size_t i = 0; i < snapshot.entries().size(); ++i) {
    storage::ShardEntry entry{.spec = snapshot.entries()[i]};
    if (digests) {
      entry.first_chunk = index.chunks.size();
      entry.chunk_count = 1;
      storage::ChunkRecord chunk;
      chunk.digest = storage::DigestOf(snapshot.bytes(i));
      index.chunks.push_back(chunk);
    }
    index.entries.push_back(std::move(entry));
  }
  return index;
}

absl::StatusOr<EntryMatch> Match(const Snapshot& snapshot, State& state, const RestoreOptions& options) {
  const storage::ShardIndex plain = IndexOf(snapshot, /*digests=*/false);
  const std::vector<EntrySpec> renamed = RenamedSpecs(plain, options);
  const std::vector<bool> replaced = FindReplaced(plain, renamed);
  std::vector<EntrySpec> wanted;
  for (size_t i = 0; i < renamed.size(); ++i) {
    if (!replaced[i] && IsWanted(renamed[i].name, options)) wanted.push_back(renamed[i]);
  }
  absl::Status prepared = Guarded("State::PrepareRestore", [&] { return state.PrepareRestore(wanted); });
  if (!prepared.ok()) return prepared;
  const std::span<const State::Entry> entries = state.entries();
  const bool tied =
      std::any_of(entries.begin(), entries.end(), [](const State::Entry& entry) { return entry.alias_of >= 0; });
  return MatchEntries(tied ? IndexOf(snapshot, /*digests=*/true) : plain, renamed, state, options);
}

// The bytes of a snapshot's entries, for PlanDestinations.
class SnapshotBytes final : public SavedBytes {
 public:
  explicit SnapshotBytes(const Snapshot& snapshot) : snapshot_(snapshot) {}
  bool AreSame(size_t one, size_t other) const override {
    const std::span<const std::byte> a = snapshot_.bytes(one);
    const std::span<const std::byte> b = snapshot_.bytes(other);
    return a.size() == b.size() && (a.data() == b.data() || std::memcmp(a.data(), b.data(), a.size()) == 0);
  }
  absl::Status Read(std::span<const storage::EntryRead> reads) const override {
    for (const storage::EntryRead& read : reads) {
      if (read.destination.empty()) continue;
      const std::byte* const source = snapshot_.bytes(read.entry).data() + read.begin.value_or(0);
      std::memcpy(read.destination.data(), source, read.destination.size());
    }
    return absl::OkStatus();
  }

 private:
  const Snapshot& snapshot_;
};

// Hands values, or tensors that only the state can reach, to the state.
absl::Status Give(const Snapshot& snapshot, std::span<const EntryMatch::Pair> pairs, State& state) {
  absl::Status status;
  for (const EntryMatch::Pair& pair : pairs) {
    status = Guarded("State::Receive", [&] { return state.Receive(pair.entry, snapshot.bytes(pair.saved)); });
    if (!status.ok()) break;
  }
  // After a failure, too: a device may be reading the snapshot's bytes.
  status.Update(Guarded("State::FlushReceived", [&] { return state.FlushReceived(); }));
  return status;
}

// Values first: the state may refuse one. Then it compares tensors that share memory. No tensor is touched until both
// are known to fit.
absl::Status Fill(const Snapshot& snapshot, const EntryMatch& match, State& state) {
  std::vector<EntryMatch::Pair> values;
  std::vector<EntryMatch::Pair> received;
  std::vector<Destination> placed;
  for (const EntryMatch::Pair& pair : match.pairs) {
    const State::Entry& entry = state.entries()[pair.entry];
    if (entry.spec.kind != EntryKind::kTensor) {
      values.push_back(pair);
    } else if (entry.host == nullptr && entry.bytes > 0) {
      received.push_back(pair);
    } else {
      placed.push_back(
          {.saved = pair.saved, .memory = {entry.host, static_cast<size_t>(entry.bytes)}, .name = entry.spec.name});
    }
  }
  if (absl::Status status = Give(snapshot, values, state); !status.ok()) return status;
  const SnapshotBytes saved(snapshot);
  const auto reads = PlanDestinations(saved, placed, kComparedBytesMax);
  if (!reads.ok()) return reads.status();
  for (const DestinationRead& read : *reads) {
    if (absl::Status status = saved.Read({&read.read, 1}); !status.ok()) return status;
  }
  if (absl::Status status = Give(snapshot, received, state); !status.ok()) return status;
  return Guarded("State::FinishRestore", [&] { return state.FinishRestore(); });
}

absl::StatusOr<std::shared_ptr<const Snapshot>> CaptureState(State& state) {
  Stager stager({.directory = {}}, [] { return ReadAvailableMemory(); });
  absl::StatusOr<std::unique_ptr<StagedSnapshot>> begun = stager.Begin(/*step=*/0, state, {}, absl::Now());
  if (!begun.ok()) return begun.status();
  std::shared_ptr<StagedSnapshot> snapshot = *std::move(begun);
  absl::Status status = stager.CopyTensors(state, *snapshot);
  snapshot->progress()->End(status);
  if (!status.ok()) return status;
  return snapshot;
}

absl::Status CheckOptions(const RestoreOptions& options) {
  if (!options.accept && !options.healthy_only) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("RestoreFrom has no step to choose, so RestoreOptions::{} must not be set",
                  options.healthy_only ? "healthy_only" : "accept"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Snapshot>> Capture(State& state) {
  return Guarded("Capture", [&] { return CaptureState(state); });
}

absl::Status RestoreFrom(const Snapshot& snapshot, State& state, const RestoreOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  state.AwaitStaging();
  const absl::Status status = Guarded("RestoreFrom", [&]() -> absl::Status {
    const absl::StatusOr<EntryMatch> match = Match(snapshot, state, options);
    return match.ok() ? Fill(snapshot, *match, state) : match.status();
  });
  if (status.ok()) return status;
  const absl::Status abandoned = Guarded("State::AbandonRestore", [&] { state.AbandonRestore(); });
  if (abandoned.ok()) return status;
  return absl::Status(status.code(),
                      fmt::format("{}; {}", std::string(status.message()), std::string(abandoned.message())));
}

}  // namespace tidemark
