#include "tests/storage/ranks/rank_simulation.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/storage/ranks/rank_world.h"

namespace tidemark::storage {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kCoordinatorDeadline = 10;
constexpr double kParticipantDeadline = 15;
constexpr double kEndless = 1000;

class Job {
 public:
  explicit Job(uint32_t seed) : random_(seed), setting_(DrawSetting()), world_(setting_) {
    told_.ranks = setting_.ranks;
    for (size_t rank = 0; rank < setting_.ranks; ++rank) {
      dies_.push_back(Chance(death_) ? Uniform(0, 12) : kNever);
      told_.deaths += dies_.back() < kNever ? 1 : 0;
      begun_.push_back(0);
      stood_still_.push_back(false);
      At(Uniform(0, 0.1), [this, rank] { ActOfRank(rank); });
    }
    told_.coordinator_died = dies_[0] < kNever;
    told_.loses_messages = lost_ > 0;
    At(Uniform(0, 0.1), [this] { ActOfHolder(); });
    if (Chance(takes_)) {
      told_.was_taken_over = true;
      At(Uniform(0, 20), [this] { ActOfTaker(); });
    }
    if (Chance(loses_power_)) {
      told_.lost_power = true;
      At(Uniform(0, 20), [this] { LosePower(); });
    }
  }

  SimulatedJob Run() {
    while (!events_.empty() && told_.violation.empty()) {
      Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (now_ > kEndless) told_.violation = "the job does not end";
      event.act();
    }
    if (told_.violation.empty()) told_.violation = world_.Violation();
    return told_;
  }

 private:
  struct Event {
    double time = 0;
    uint64_t number = 0;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);  // the earliest is on top
    }
  };

  RanksSetting DrawSetting() {
    const uint32_t ranks = 2 + static_cast<uint32_t>(random_() % (Chance(0.1) ? 63 : 7));
    // A third of the jobs have no faults at all; the others have some kinds of them.
    if (!Chance(1.0 / 3)) {
      const auto kind = [&](double often) { return Chance(0.4) ? often : 0; };
      death_ = kind(1.0 / ranks);
      stall_ = kind(0.03);
      failure_ = kind(0.05);
      lost_ = kind(0.9);
      old_ = kind(0.3);
      takes_ = kind(0.5);
      loses_power_ = kind(0.5);
    }
    constexpr int kEnough = 1'000'000;
    return {.ranks = ranks, .attempts = kSteps, .failed_syncs = kEnough, .old_listings = kEnough};
  }

  double Uniform(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  bool Chance(double probability) { return Uniform(0, 1) < probability; }
  void At(double time, std::function<void()> act) { events_.push({time, ++events_made_, std::move(act)}); }

  bool SyncWorks() {
    if (!Chance(failure_)) return true;
    ++told_.failed_syncs;
    return false;
  }

  void ActOfRank(size_t r) {
    if (lost_power_ || now_ >= dies_[r] || world_.IsDone(world_.ranks()[r])) return;
    const int attempt = world_.ranks()[r].attempt;
    const double deadline = begun_[r] + kParticipantDeadline;
    double next = kPollSeconds;
    switch (world_.ranks()[r].participant.step()) {
      case Participant::Step::kWrite:
        if (now_ >= deadline) {
          world_.Expire(r);
        } else if (!world_.ranks()[r].has_written) {
          world_.Write(r);
          next = Uniform(0.1, kWriteSeconds);
        } else {
          world_.Sync(r, world_.HearsOfFailure(r) || SyncWorks());
        }
        break;
      case Participant::Step::kVote:
        world_.Vote(r);
        break;
      case Participant::Step::kWait:
        if (now_ >= deadline) {
          world_.Expire(r);
        } else {
          ListenOfRank(r, attempt);
        }
        break;
      case Participant::Step::kSettle:
        if (world_.ranks()[r].journal.entry != 0) {
          world_.EndSettling(r, SyncWorks());
        } else if (Chance(old_)) {
          world_.EndSettling(r, false);  // out of reach
        } else {
          world_.BeginSettling(r);
        }
        break;
      case Participant::Step::kNone:
        break;
    }
    if (world_.ranks()[r].attempt != attempt) Told(r);
    if (Chance(stall_)) {
      ++told_.stalls;
      stood_still_[r] = true;
      next = Uniform(1, 30);
    }
    At(now_ + Uniform(0.5, 1) * next, [this, r] { ActOfRank(r); });
  }

  void ListenOfRank(size_t r, int attempt) {
    for (const RankOutcome& outcome : std::vector<RankOutcome>(world_.outcomes())) {
      if (Chance(lost_)) continue;
      const auto read = DecodeRankOutcomes(*EncodeRankOutcomes({.outcomes = {outcome}}));
      world_.HearOutcome(r, read->outcomes.at(0));
      if (world_.ranks()[r].attempt != attempt) return;
    }
    size_t entries = world_.entries();
    const size_t seen = world_.ranks()[r].journal.seen;
    if (Chance(old_)) entries = seen + random_() % (entries - seen + 1);
    world_.Look(r, entries);
  }

  void Told(size_t r) {
    switch (world_.ranks()[r].last_result) {
      case Participant::Result::kCommitted:
        ++told_.committed;
        break;
      case Participant::Result::kAborted:
        ++told_.aborted;
        break;
      default:
        ++told_.unknown;
    }
    told_.last_told = now_;
    told_.violation = world_.Violation();
    if (now_ - begun_[r] > kToldWithinSeconds && !stood_still_[r]) {
      told_.violation = fmt::format("rank {} was told after {} seconds", r, now_ - begun_[r]);
    }
    begun_[r] = now_;
    stood_still_[r] = false;
  }

  void ActOfHolder() {
    if (lost_power_ || now_ >= dies_[0] || world_.IsDone(*world_.holder())) return;
    const Coordinator& coordinator = world_.holder()->coordinator;
    switch (coordinator.step()) {
      case Coordinator::Step::kCollect:
        for (const RankVote& vote : world_.votes()) {
          if (coordinator.step() != Coordinator::Step::kCollect) break;
          const bool is_heard = coordinator.HasVoted(vote.part.rank);
          if (is_heard ? Chance(0.02) : !Chance(lost_)) world_.HearVote(*DecodeRankVote(*EncodeRankVote(vote)));
        }
        if (now_ >= holder_begun_ + kCoordinatorDeadline) world_.ExpireHolder();
        break;
      case Coordinator::Step::kAppend:
      case Coordinator::Step::kSettle:
        if (world_.holder()->journal.entry != 0) {
          world_.EndAppend(SyncWorks());
        } else if (coordinator.step() == Coordinator::Step::kAppend && !SyncWorks()) {
          world_.FailAppend();
        } else {
          world_.BeginAppend();
        }
        break;
      case Coordinator::Step::kNone:
        world_.StateOutcome();
        holder_begun_ = now_;
        told_.violation = world_.Violation();
        break;
    }
    At(now_ + Uniform(0.5, 1) * kPollSeconds, [this] { ActOfHolder(); });
  }

  void ActOfTaker() {
    const RankWorld::Taker& taker = world_.takers()[0];
    if (taker.is_done) return;
    if (taker.journal.entry == 0) {
      world_.BeginTaking(0);
    } else {
      world_.EndTaking(0, SyncWorks());
      told_.violation = world_.Violation();
    }
    At(now_ + Uniform(0, 1), [this] { ActOfTaker(); });
  }

  void LosePower() {
    lost_power_ = true;
    const size_t lost = random_() % (world_.entries() - world_.durable_entries() + 1);
    world_.LosePower(world_.entries() - lost);
    At(now_ + 1, [this] { ActOfTaker(); });
  }

  std::mt19937 random_;
  double death_ = 0;  // of a rank
  double stall_ = 0;  // after each of its actions
  double failure_ = 0;
  double lost_ = 0;  // a statement, at each look
  double old_ = 0;   // a listing
  double takes_ = 0;
  double loses_power_ = 0;
  const RanksSetting setting_;
  RankWorld world_;
  SimulatedJob told_;
  double now_ = 0;
  std::vector<double> dies_;
  std::vector<double> begun_;
  std::vector<bool> stood_still_;  // since that
  double holder_begun_ = 0;
  bool lost_power_ = false;
  std::priority_queue<Event> events_;
  uint64_t events_made_ = 0;
};

}  // namespace

SimulatedJob SimulateJob(uint32_t seed) { return Job(seed).Run(); }

}  // namespace tidemark::storage
