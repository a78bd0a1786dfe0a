// Ranks that save steps together, and what can happen to them: the state machines of storage/ranks over a model of the
// shared folder, the journal and the messages. The exploration tries every order of events, the simulation draws some.
//
// The model of the shards. A shard's bytes are synced or not. Its name in the attempt's folder, and that folder's name
// in steps/, are visible; visible after a sync that failed, which is uncertain for good; or durable. A rank syncs both
// folders at once. A sync that works makes all visible names in them durable. A failed one is reported once to each
// rank that had steps/ open.
//
// The model of the journal has what tests/storage/journal shows of the real one. An append reads everything, past all
// caches. Entries have one order, and a holder's does not count after a newer epoch. Each states how far its writer
// knew the journal to be durable. A sync that works makes durable its entry and all before it; power loss takes any
// number of the others, the last ones. Others may read an old listing.

#ifndef TIDEMARK_TESTS_STORAGE_RANKS_RANK_WORLD_H_
#define TIDEMARK_TESTS_STORAGE_RANKS_RANK_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "storage/ranks/coordinator.h"
#include "storage/ranks/participant.h"
#include "storage/ranks/statements.h"

namespace tidemark::storage {

// A rule that is broken, to show that it is needed.
enum class LeftOutOfRanks {
  kNothing,
  // Of a participant.
  kVoteAfterSync,      // it votes yes when it has written
  kFailedSyncIsNo,     // it votes yes although a sync failed
  kDescriptorFirst,    // it opens the folder when it syncs
  kOutcomeIdentity,    // it takes another attempt's outcome for its own
  kLookEstablished,    // it believes a commit that is only visible
  kEpochEstablished,   // it believes an epoch that is only visible
  kDeadlineIsUnknown,  // it says aborted at its deadline
  // Of the coordinator.
  kEveryVote,           // it does not wait for the last rank
  kVoteIdentity,        // it takes another attempt's vote for one of this one
  kAbortIsFinal,        // it goes on collecting after it has stated an abort
  kFence,               // its commit is appended, and counts, after a newer epoch
  kOutcomeEstablished,  // it states committed before the sync
  kUnknownIsNoOutcome,  // it takes an append of unknown outcome for one that failed
};
std::ostream& operator<<(std::ostream& out, LeftOutOfRanks rule);

struct RanksSetting {
  uint32_t ranks = 2;
  int attempts = 1;  // that each rank makes, one after the other
  int takers = 1;    // other processes that open the store, whenever they like
  int failed_syncs = 1;
  int power_losses = 1;
  int old_listings = 0;
  LeftOutOfRanks left_out = LeftOutOfRanks::kNothing;
};

// Value type. The methods that change it are events; each says when it can happen.
class RankWorld {
 public:
  explicit RankWorld(const RanksSetting& setting);

  enum class Name { kNone, kVisible, kUncertain, kDurable };

  struct Shard {
    bool synced = false;
    Name name = Name::kNone;

    template <typename H>
    friend H AbslHashValue(H h, const Shard& shard) {
      return H::combine(std::move(h), shard.synced, shard.name);
    }
  };

  struct Entry {
    enum class Kind { kEpoch, kCommit, kSettles };
    Kind kind = Kind::kSettles;
    uint64_t epoch = 0;
    int attempt = 0;     // of a commit
    size_t durable = 0;  // as its writer knew
    bool counts = true;
    template <typename H>
    friend H AbslHashValue(H h, const Entry& entry) {
      return H::combine(std::move(h), entry.kind, entry.epoch, entry.attempt, entry.durable, entry.counts);
    }
  };

  // What one process knows of the journal, and its entry that is named and not synced yet.
  struct Reader {
    size_t seen = 0;         // entries
    size_t established = 0;  // of them
    size_t entry = 0;        // 0: none
    template <typename H>
    friend H AbslHashValue(H h, const Reader& reader) {
      return H::combine(std::move(h), reader.seen, reader.established, reader.entry);
    }
  };

  struct Rank {
    explicit Rank(const RankPart& part) : participant(part) {}
    Participant participant;
    int attempt = 0;
    bool has_written = false;  // and has the folders open
    bool heard = false;        // its descriptor has a failed sync to report
    Reader journal;
    Participant::Result last_result = Participant::Result::kPending;  // of the attempt before
    template <typename H>
    friend H AbslHashValue(H h, const Rank& rank) {
      return H::combine(std::move(h), rank.participant, rank.attempt, rank.has_written, rank.heard, rank.journal);
    }
  };

  struct Holder {
    explicit Holder(const RankPart& part) : coordinator(part) {}
    Coordinator coordinator;
    int attempt = 0;
    Reader journal;
    template <typename H>
    friend H AbslHashValue(H h, const Holder& holder) {
      return H::combine(std::move(h), holder.coordinator, holder.attempt, holder.journal);
    }
  };

  struct Taker {
    bool has_begun = false;
    bool is_done = false;
    Reader journal;
    template <typename H>
    friend H AbslHashValue(H h, const Taker& taker) {
      return H::combine(std::move(h), taker.has_begun, taker.is_done, taker.journal);
    }
  };

  const RanksSetting& setting() const { return *setting_; }
  const std::vector<Rank>& ranks() const { return ranks_; }
  const std::optional<Holder>& holder() const { return holder_; }  // none after a power loss
  const std::vector<Taker>& takers() const { return takers_; }
  const std::vector<RankVote>& votes() const { return votes_; }
  const std::vector<RankOutcome>& outcomes() const { return outcomes_; }
  size_t entries() const { return journal_.size(); }
  size_t durable_entries() const { return durable_; }
  int failed_syncs() const { return failed_syncs_; }
  int power_losses() const { return power_losses_; }
  int old_listings() const { return old_listings_; }
  bool IsToldCommitted(int attempt) const { return told_[attempt].committed; }
  bool IsToldAborted(int attempt) const { return told_[attempt].aborted; }

  // Whether the rank makes no more attempts.
  bool IsDone(const Rank& rank) const { return rank.attempt >= setting_->attempts; }
  bool IsDone(const Holder& holder) const { return holder.attempt >= setting_->attempts; }

  // Of a rank that is not done. A sync that fails takes one of failed_syncs().
  void Write(size_t rank);  // kWrite, and it has not written
  bool HearsOfFailure(size_t rank) const;
  void Sync(size_t rank, bool works);  // kWrite, and it has written
  void Vote(size_t rank);              // kVote
  void HearOutcome(size_t rank, RankOutcome outcome);
  // Reads the first `entries`: at least what it has seen; fewer than there are takes one of old_listings().
  void Look(size_t rank, size_t entries);
  void Expire(size_t rank);
  void BeginSettling(size_t rank);            // kSettle, without an entry that is not synced
  void EndSettling(size_t rank, bool works);  // kSettle; does not work: the store is out of reach, or the sync failed

  // Of a holder that is not done.
  void HearVote(RankVote vote);
  void ExpireHolder();
  void BeginAppend();          // kAppend or kSettle, without an entry that is not synced
  void EndAppend(bool works);  // with such an entry
  void FailAppend();           // kAppend: the disk is full; takes one of failed_syncs()
  void StateOutcome();         // kNone

  // Of a taker that is not done.
  void BeginTaking(size_t taker);            // without an entry that is not synced
  void EndTaking(size_t taker, bool works);  // with one

  // Takes the entries from `kept` on, which is at least durable_entries(), and ends all processes. Another one starts.
  void LosePower(size_t kept);

  // What is wrong; empty: nothing. Whatever is lost with the power:
  // - a step that was told to be committed is committed, and one that was told to be aborted is not;
  // - the shards of a committed step are there.
  std::string Violation() const;

  template <typename H>
  friend H AbslHashValue(H h, const RankWorld& world) {
    if (world.holder_) h = H::combine(std::move(h), *world.holder_);
    return H::combine(std::move(h), world.journal_, world.durable_, world.folders_, world.shards_, world.ranks_,
                      world.takers_, world.votes_, world.outcomes_, world.told_, world.failed_syncs_,
                      world.power_losses_, world.old_listings_);
  }

 private:
  struct Told {
    bool committed = false;
    bool aborted = false;
    template <typename H>
    friend H AbslHashValue(H h, const Told& told) {
      return H::combine(std::move(h), told.committed, told.aborted);
    }
  };

  bool IsLeftOut(LeftOutOfRanks rule) const { return setting_->left_out == rule; }
  RankPart PartOf(uint32_t rank, int attempt) const;
  void Read(Reader& reader, size_t entries) const;
  void Append(Reader& reader, Entry entry);
  // Whether it worked: the reader's entry is established.
  void SyncEntry(Reader& reader, bool works);
  uint64_t NewestEpoch(size_t entries) const;
  bool IsCommitted(int attempt, size_t entries) const;
  JournalSight SightOf(const Rank& rank) const;
  void Tell(int attempt, bool committed) { (committed ? told_[attempt].committed : told_[attempt].aborted) = true; }
  void EndAttempt(Rank& rank);  // if its participant has ended
  bool Survives(int attempt, size_t rank) const;
  void RemoveFiles(int attempt);

  const RanksSetting* setting_;
  std::vector<Entry> journal_;
  size_t durable_ = 0;
  std::vector<Name> folders_;               // of each attempt, in steps/
  std::vector<std::vector<Shard>> shards_;  // of each attempt and rank
  std::vector<Rank> ranks_;
  std::optional<Holder> holder_;
  std::vector<Taker> takers_;
  std::vector<RankVote> votes_;        // all that were stated
  std::vector<RankOutcome> outcomes_;  // all that were stated
  std::vector<Told> told_;             // of each attempt
  int failed_syncs_;
  int power_losses_;
  int old_listings_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RANKS_RANK_WORLD_H_
