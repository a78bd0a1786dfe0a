#include "storage/ranks/coordinator.h"

#include <algorithm>

#include "fmt/format.h"
#include "storage/io/check.h"

namespace tidemark::storage {
namespace {

constexpr size_t kRanksNamed = 8;  // in a message

}  // namespace

Coordinator::Step Coordinator::Hear(const RankVote& vote) {
  if (step_ != Step::kCollect) return step_;
  if (vote.part.session != part_.session) return step_;
  if (vote.part.attempt != part_.attempt) {
    if (vote.part.rank < elsewhere_.size()) elsewhere_[vote.part.rank] = vote.part.step;
    return step_;
  }
  if (vote.part.world_size != part_.world_size) {
    return Abort(fmt::format("rank {} is one of {} ranks, rank {} one of {}", vote.part.rank, vote.part.world_size,
                             part_.rank, part_.world_size));
  }
  // A rank that could not begin its save knows no structure.
  if (!vote.yes) return Abort(fmt::format("rank {}: {}", vote.part.rank, vote.reason));
  if (vote.part.structure != part_.structure) {
    return Abort(fmt::format(
        "rank {} and rank {} differ in the entries that match RankOptions::replicated: in names, kinds, "
        "dtypes, shapes, or in which are boxes, buffers, tied, or an optimizer's. What is one rank's own needs "
        "a name that no pattern matches",
        vote.part.rank, part_.rank));
  }
  votes_[vote.part.rank] = vote;
  const bool complete = std::all_of(votes_.begin(), votes_.end(), [](const auto& known) { return known.has_value(); });
  return step_ = complete ? Step::kAppend : Step::kCollect;
}

StepRecord Coordinator::Merged() const {
  std::vector<RankVote> votes;
  for (const std::optional<RankVote>& vote : votes_) {
    Check(vote.has_value(), "votes are merged before every rank has voted");
    votes.push_back(*vote);
  }
  return MergeVotes(votes);
}

Coordinator::Step Coordinator::Expire() {
  if (step_ != Step::kCollect) return step_;
  std::string missing;
  size_t count = 0;
  for (size_t rank = 0; rank < votes_.size(); ++rank) {
    if (votes_[rank]) continue;
    if (++count > kRanksNamed) continue;
    missing += fmt::format("{}{}", count == 1 ? "" : ", ", rank);
    if (elsewhere_[rank]) missing += fmt::format(" (which has voted on step {})", *elsewhere_[rank]);
  }
  if (count > kRanksNamed) missing += fmt::format(" and {} more", count - kRanksNamed);
  return Abort(fmt::format("no vote of rank{} {} came before the deadline", count == 1 ? "" : "s", missing));
}

Coordinator::Step Coordinator::Appended(Appender::Result result, const absl::Status& status) {
  Check(step_ == Step::kAppend, "an answer to an append that was not asked for");
  switch (result) {
    case Appender::Result::kEstablished:
      return Commit();
    case Appender::Result::kRefused:
    case Appender::Result::kFailed:
      return Abort(fmt::format("rank {} could not append the commit: {}", part_.rank, status.ToString()));
    case Appender::Result::kUnknown:
      return step_ = Step::kSettle;
    case Appender::Result::kPending:
      break;
  }
  Check(false, "an append that has not ended");
  return step_;
}

Coordinator::Step Coordinator::Refuse(const absl::Status& why) {
  Check(step_ == Step::kAppend, "an answer to an append that was not asked for");
  return Abort(fmt::format("the shards of all ranks make no step that can be read: {}", why.ToString()));
}

Coordinator::Step Coordinator::Settled(bool committed) {
  Check(step_ == Step::kSettle, "an answer to a settling that was not asked for");
  return committed ? Commit() : Abort("the file system has lost the commit's entry");
}

Coordinator::Step Coordinator::Commit() {
  outcome_ = {.attempt = part_.attempt, .step = part_.step, .committed = true};
  return step_ = Step::kNone;
}

Coordinator::Step Coordinator::Abort(std::string reason) {
  outcome_ = {.attempt = part_.attempt, .step = part_.step, .committed = false, .reason = std::move(reason)};
  return step_ = Step::kNone;
}

}  // namespace tidemark::storage
