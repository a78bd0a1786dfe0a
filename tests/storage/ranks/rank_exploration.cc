#include "tests/storage/ranks/rank_exploration.h"

#include <string>
#include <utility>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

class RanksSearch final : public Search<RankWorld> {
 public:
  using Search::Search;

 private:
  std::string Violation(const RankWorld& world) override { return world.Violation(); }

  void Events(const RankWorld& world) override {
    for (size_t rank = 0; rank < world.ranks().size(); ++rank) {
      if (!world.IsDone(world.ranks()[rank])) EventsOfRank(world, rank);
    }
    if (world.holder() && !world.IsDone(*world.holder())) EventsOfHolder(world);
    for (size_t taker = 0; taker < world.takers().size(); ++taker) {
      if (!world.takers()[taker].is_done) EventsOfTaker(world, taker);
    }
    if (world.power_losses() == 0) return;
    for (size_t kept = world.durable_entries(); kept <= world.entries(); ++kept) {
      After(world, fmt::format("the power goes; {} entries are left", kept), &RankWorld::LosePower, kept);
    }
  }

  template <typename... Args, typename... Given>
  void After(const RankWorld& world, std::string event, void (RankWorld::*apply)(Args...), Given... given) {
    RankWorld next = world;
    (next.*apply)(given...);
    Add(std::move(event), std::move(next));
  }

  void EventsOfRank(const RankWorld& world, size_t r) {
    const RankWorld::Rank& rank = world.ranks()[r];
    const bool can_fail = world.failed_syncs() > 0;
    switch (rank.participant.step()) {
      case Participant::Step::kWrite:
        if (!rank.has_written) {
          After(world, fmt::format("{} writes", r), &RankWorld::Write, r);
        } else if (world.HearsOfFailure(r)) {
          After(world, fmt::format("{} hears of a sync that failed", r), &RankWorld::Sync, r, false);
        } else {
          After(world, fmt::format("{} syncs", r), &RankWorld::Sync, r, true);
          if (can_fail) After(world, fmt::format("{} syncs, which fails", r), &RankWorld::Sync, r, false);
        }
        break;
      case Participant::Step::kVote:
        After(world, fmt::format("{} votes {}", r, rank.participant.vote().yes), &RankWorld::Vote, r);
        break;
      case Participant::Step::kSettle:
        if (rank.journal.entry == 0) {
          After(world, fmt::format("{} names an entry", r), &RankWorld::BeginSettling, r);
          After(world, fmt::format("{} does not reach the journal", r), &RankWorld::EndSettling, r, false);
        } else {
          After(world, fmt::format("{} syncs its entry", r), &RankWorld::EndSettling, r, true);
          if (can_fail) After(world, fmt::format("{}'s entry is not synced", r), &RankWorld::EndSettling, r, false);
        }
        return;
      case Participant::Step::kWait:
        break;
      case Participant::Step::kNone:
        return;
    }
    After(world, fmt::format("{}'s deadline passes", r), &RankWorld::Expire, r);
    for (const RankOutcome& outcome : world.outcomes()) {
      After(world, fmt::format("{} hears of step {}: {}", r, outcome.step, outcome.committed), &RankWorld::HearOutcome,
            r, outcome);
    }
    const size_t oldest = world.old_listings() > 0 ? rank.journal.seen : world.entries();
    for (size_t entries = oldest; entries <= world.entries(); ++entries) {
      After(world, fmt::format("{} reads {} entries", r, entries), &RankWorld::Look, r, entries);
    }
  }

  void EventsOfHolder(const RankWorld& world) {
    const RankWorld::Holder& holder = *world.holder();
    const bool can_fail = world.failed_syncs() > 0;
    switch (holder.coordinator.step()) {
      case Coordinator::Step::kCollect:
        for (const RankVote& vote : world.votes()) {
          After(world, fmt::format("the coordinator hears {} on step {}: {}", vote.part.rank, vote.part.step, vote.yes),
                &RankWorld::HearVote, vote);
        }
        After(world, "the coordinator's deadline passes", &RankWorld::ExpireHolder);
        return;
      case Coordinator::Step::kAppend:
      case Coordinator::Step::kSettle:
        if (holder.journal.entry == 0) {
          After(world, "the coordinator names an entry", &RankWorld::BeginAppend);
          if (can_fail && holder.coordinator.step() == Coordinator::Step::kAppend) {
            After(world, "the coordinator finds the disk full", &RankWorld::FailAppend);
          }
        } else {
          After(world, "the coordinator syncs its entry", &RankWorld::EndAppend, true);
          if (can_fail) After(world, "the coordinator's sync fails", &RankWorld::EndAppend, false);
        }
        return;
      case Coordinator::Step::kNone:
        After(world, fmt::format("the coordinator states {}", holder.coordinator.outcome().committed),
              &RankWorld::StateOutcome);
        return;
    }
  }

  void EventsOfTaker(const RankWorld& world, size_t t) {
    if (world.takers()[t].journal.entry == 0) {
      After(world, fmt::format("taker {} names an entry", t), &RankWorld::BeginTaking, t);
      return;
    }
    After(world, fmt::format("taker {} syncs its entry", t), &RankWorld::EndTaking, t, true);
    if (world.failed_syncs() > 0)
      After(world, fmt::format("taker {}'s sync fails", t), &RankWorld::EndTaking, t, false);
  }
};

}  // namespace

Explored ExploreRanks(const RanksSetting& setting, size_t states_max, uint32_t seed) {
  return RanksSearch(states_max, seed).Run(RankWorld(setting));
}

}  // namespace tidemark::storage
