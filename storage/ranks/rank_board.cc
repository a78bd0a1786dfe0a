#include "storage/ranks/rank_board.h"

#include <span>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/io/fresh_look.h"

namespace tidemark::storage {
namespace {

constexpr std::string_view kOutcomes = "outcomes";

std::string VoteName(uint32_t rank) { return fmt::format("vote-{:05}", rank); }
std::string RefusalsName(uint32_t rank) { return fmt::format("refused-{:05}", rank); }

absl::Status EnsureFolder(FileSystem& files, const std::string& path) {
  absl::Status status = files.CreateDirectory(path);
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
}

}  // namespace

RankBoard::RankBoard(FileSystem& files, const StoreLayout& layout, const SessionId& session, uint32_t rank)
    : files_(files), ranks_(layout.ranks()), directory_(layout.ranks(session)), rank_(rank) {}

absl::Status RankBoard::Open() {
  if (absl::Status status = EnsureFolder(files_, ranks_); !status.ok()) return status;
  if (absl::Status status = EnsureFolder(files_, directory_); !status.ok()) return status;
  const std::string place = PathOf(fmt::format("here-{:05}", rank_));
  const absl::Status taken = files_.Create(place, /*direct=*/false).status();
  if (!absl::IsAlreadyExists(taken)) return taken;
  return absl::FailedPreconditionError(
      fmt::format("{}: rank {} takes part already, or did before it was started again: all ranks must open the store "
                  "anew",
                  place, rank_));
}

void RankBoard::RemoveOtherSessions() const {
  const absl::StatusOr<std::vector<DirectoryEntry>> sessions = files_.ListDirectory(ranks_);
  if (!sessions.ok()) return;
  for (const DirectoryEntry& session : *sessions) {
    const std::string path = fmt::format("{}/{}", ranks_, session.name);
    if (path != directory_) RemoveTree(files_, path).IgnoreError();
  }
}

std::string RankBoard::PathOf(std::string_view name) const { return fmt::format("{}/{}", directory_, name); }

absl::Status RankBoard::State(std::string_view name, const absl::StatusOr<std::string>& bytes) {
  if (!bytes.ok()) return bytes.status();
  const std::string draft = PathOf(fmt::format("new-{:05}", rank_));
  // One that an earlier call has left.
  if (absl::Status status = files_.RemoveFile(draft); !status.ok() && !absl::IsNotFound(status)) return status;
  absl::StatusOr<std::unique_ptr<File>> file = files_.Create(draft, /*direct=*/false);
  if (!file.ok()) return file.status();
  if (absl::Status status = (*file)->WriteAt(0, AsBytes(*bytes)); !status.ok()) return status;
  return files_.Rename(draft, PathOf(name));
}

absl::Status RankBoard::StateVote(const RankVote& vote) { return State(VoteName(rank_), EncodeRankVote(vote)); }

absl::Status RankBoard::StateOutcomes(const RankOutcomes& outcomes) {
  return State(kOutcomes, EncodeRankOutcomes(outcomes));
}

absl::Status RankBoard::StateRefusals(const RankOutcomes& refusals) {
  return State(RefusalsName(rank_), EncodeRankOutcomes(refusals));
}

absl::StatusOr<std::optional<RankVote>> RankBoard::ReadVote(uint32_t rank) const {
  const std::string path = PathOf(VoteName(rank));
  const absl::StatusOr<std::string> bytes = ReadSmallFile(files_, path, kStatementBytesMax);
  if (absl::IsNotFound(bytes.status())) return std::nullopt;
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<RankVote> vote = DecodeRankVote(*bytes);
  if (!vote.ok()) {
    return absl::Status(vote.status().code(), fmt::format("{}: {}", path, std::string(vote.status().message())));
  }
  if (vote->part.rank != rank) {
    return absl::DataLossError(fmt::format("{}: the vote is that of rank {}", path, vote->part.rank));
  }
  return *std::move(vote);
}

absl::StatusOr<std::optional<RankOutcomes>> RankBoard::ReadOutcomes() const { return ReadList(kOutcomes); }

absl::StatusOr<std::optional<RankOutcomes>> RankBoard::ReadRefusals(uint32_t rank) const {
  return ReadList(RefusalsName(rank));
}

absl::StatusOr<std::optional<RankOutcomes>> RankBoard::ReadList(std::string_view name) const {
  const std::string path = PathOf(name);
  const absl::StatusOr<std::string> bytes = ReadSmallFile(files_, path, kStatementBytesMax);
  if (absl::IsNotFound(bytes.status())) return std::nullopt;
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<RankOutcomes> outcomes = DecodeRankOutcomes(*bytes);
  if (!outcomes.ok()) {
    return absl::Status(outcomes.status().code(),
                        fmt::format("{}: {}", path, std::string(outcomes.status().message())));
  }
  return *std::move(outcomes);
}

void RankBoard::LookAfresh() const {
  storage::LookAfresh(files_, PathOf(fmt::format("look-{:05}-{}", rank_, ToHex(RandomBytes16()))));
}

}  // namespace tidemark::storage
