#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/guarded.h"
#include "snapshot/ranks/rank_exchange.h"
#include "snapshot/ranks/replicated_entries.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/bytes/ids.h"
#include "storage/io/printable_text.h"
#include "tidemark/replicas.h"

namespace tidemark {
namespace {

constexpr std::string_view kAll = "CompareReplicas";
constexpr std::string_view kEach = "CompareReplicas (each tensor)";

// A message names so many tensors, and of each so many ranks.
constexpr size_t kTensorsNamed = 5;
constexpr size_t kRanksNamed = 8;

struct Replica {
  std::vector<std::string> names;  // sorted
  std::vector<storage::Digest128> digests;
};

// What one rank tells first.
struct Summary {
  absl::Status status;
  storage::Digest128 names;
  storage::Digest128 bytes;
};

std::string Encode(const Summary& summary) {
  storage::ByteWriter writer;
  writer.PutBytes16(summary.names.bytes);
  writer.PutBytes16(summary.bytes.bytes);
  writer.PutText(EncodeStatus(summary.status));
  return std::move(writer).Take();
}

absl::StatusOr<Summary> Decode(std::string_view bytes) {
  storage::ByteReader reader(storage::AsBytes(bytes), "what a rank says of its replicas");
  Summary summary;
  summary.names = {reader.GetBytes16("digest of the names")};
  summary.bytes = {reader.GetBytes16("digest of the bytes")};
  const std::string_view status = reader.GetText(reader.remaining(), "status");
  if (!reader.ok()) return reader.status();
  if (absl::Status decoded = DecodeStatus(status, &summary.status); !decoded.ok()) return decoded;
  return summary;
}

absl::StatusOr<storage::Digest128> DigestOfEntry(State& state, size_t index) {
  const State::Entry& entry = state.entries()[index];
  if (entry.host != nullptr || entry.bytes == 0) {
    return storage::DigestOf({entry.host, static_cast<size_t>(entry.bytes)});
  }
  std::vector<std::byte> copy(entry.bytes);
  const State::CopyRequest request = {.entry = index, .destination = copy.data()};
  if (absl::Status copied = state.CopyToHost({&request, 1}); !copied.ok()) return copied;
  return storage::DigestOf(copy);
}

absl::StatusOr<Replica> Look(State& state, const RankOptions& ranks) {
  state.AwaitStaging();
  if (absl::Status status = state.Refresh(); !status.ok()) return status;
  if (absl::Status status = state.BeginStaging(); !status.ok()) return status;
  const std::span<const State::Entry> entries = state.entries();
  const ReplicatedEntries replicated = AssignWriters(entries, ranks.replicated, ranks.world_size);
  std::vector<size_t> compared;
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool is_replicated = replicated.writers[i] != ReplicatedEntries::kEveryRank;
    const bool is_parameter = entries[i].spec.kind == EntryKind::kTensor && !entries[i].changes_early;
    if (is_replicated && is_parameter && entries[i].alias_of < 0) compared.push_back(i);
  }
  if (compared.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("no tensor of the state is replicated: none that matches [{}]", fmt::join(ranks.replicated, ", ")));
  }
  std::ranges::sort(compared, {}, [&](size_t i) -> std::string_view { return entries[i].spec.name; });
  Replica replica;
  for (const size_t i : compared) {
    replica.names.push_back(fmt::format("{} {}", entries[i].spec.name, DescribeEntry(entries[i].spec)));
    const absl::StatusOr<storage::Digest128> digest = DigestOfEntry(state, i);
    if (!digest.ok()) return digest.status();
    replica.digests.push_back(*digest);
  }
  return replica;
}

// The ranks that have not what most have; of two that differ, the higher. Empty: all have the same.
std::vector<size_t> Outliers(const std::vector<storage::Digest128>& by_rank) {
  std::map<std::array<uint8_t, 16>, size_t> count;
  for (const storage::Digest128& digest : by_rank) ++count[digest.bytes];
  const auto most = std::ranges::max_element(
      by_rank, {}, [&](const storage::Digest128& digest) { return count[digest.bytes]; });  // the first of them
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] != *most) ranks.push_back(rank);
  }
  return ranks;
}

std::string DescribeRanks(const std::vector<size_t>& ranks, size_t world_size) {
  const size_t named = std::min(ranks.size(), kRanksNamed);
  std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks",
                                 fmt::join(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(named), ", "));
  if (ranks.size() > named) text += fmt::format(" and {} more", ranks.size() - named);
  const size_t others = world_size - ranks.size();
  return others == 1 ? fmt::format("{} than on the other rank", text)
                     : fmt::format("{} than on the {} other ranks", text, others);
}

// Where the bytes differ. Every rank calls it.
absl::Status NameTensors(RankExchange& exchange, const Replica& replica) {
  storage::ByteWriter writer;
  for (const storage::Digest128& digest : replica.digests) writer.PutBytes16(digest.bytes);
  const absl::StatusOr<std::vector<std::string>> given = exchange.Gather(kEach, writer.view());
  if (!given.ok()) return given.status();
  std::vector<std::vector<storage::Digest128>> by_tensor(replica.digests.size());
  for (const std::string& bytes : *given) {
    storage::ByteReader reader(storage::AsBytes(bytes), "a rank's digests");
    for (auto& digests : by_tensor) digests.push_back({reader.GetBytes16("digest")});
    if (!reader.ok()) return reader.status();
  }
  size_t differ = 0;
  std::string named;
  for (size_t i = 0; i < by_tensor.size(); ++i) {
    const std::vector<size_t> outliers = Outliers(by_tensor[i]);
    if (outliers.empty()) continue;
    if (++differ > kTensorsNamed) continue;
    named += fmt::format("\n  {}: other bytes on {}", storage::PrintableText(replica.names[i]),
                         DescribeRanks(outliers, by_tensor[i].size()));
  }
  if (differ > kTensorsNamed) named += fmt::format("\n  and {} more", differ - kTensorsNamed);
  return absl::FailedPreconditionError(
      fmt::format("{} of {} replicated tensors differ between ranks:{}", differ, by_tensor.size(), named));
}

}  // namespace

absl::Status CompareReplicas(State& state, const RankOptions& ranks) {
  if (ranks.world_size == 1) return absl::OkStatus();
  if (ranks.rank < 0 || ranks.rank >= ranks.world_size || !ranks.all_gather) {
    return absl::InvalidArgumentError(fmt::format("RankOptions: rank {} of {} with {} all_gather", ranks.rank,
                                                  ranks.world_size, ranks.all_gather ? "an" : "no"));
  }
  return Guarded("CompareReplicas", [&]() -> absl::Status {
    RankExchange exchange(ranks);
    const absl::StatusOr<Replica> replica = Guarded("CompareReplicas", [&] { return Look(state, ranks); });
    Summary own = {.status = replica.status()};
    if (replica.ok()) {
      const std::string all_names = fmt::format("{}", fmt::join(replica->names, "\n"));
      own.names = storage::DigestOf(std::as_bytes(std::span(all_names)));
      own.bytes = storage::DigestOf(std::as_bytes(std::span(replica->digests)));
    }
    const absl::StatusOr<std::vector<std::string>> given = exchange.Gather(kAll, Encode(own));
    if (!given.ok()) return given.status();
    std::vector<storage::Digest128> names;
    std::vector<storage::Digest128> bytes;
    for (size_t rank = 0; rank < given->size(); ++rank) {
      const absl::StatusOr<Summary> summary = Decode((*given)[rank]);
      if (!summary.ok()) return summary.status();
      if (!summary->status.ok()) {
        return absl::Status(summary->status.code(),
                            fmt::format("rank {}: {}", rank, std::string(summary->status.message())));
      }
      names.push_back(summary->names);
      bytes.push_back(summary->bytes);
    }
    if (const std::vector<size_t> outliers = Outliers(names); !outliers.empty()) {
      return absl::FailedPreconditionError(fmt::format("replicated tensors have other names, dtypes or shapes on {}",
                                                       DescribeRanks(outliers, names.size())));
    }
    if (Outliers(bytes).empty()) return absl::OkStatus();
    return NameTensors(exchange, *replica);
  });
}

}  // namespace tidemark
