// Persister: the consumer of the snapshot stream that makes steps survive power loss.

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_PERSISTER_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_PERSISTER_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "snapshot/consumers/companions.h"
#include "snapshot/consumers/snapshot_stream.h"
#include "snapshot/housekeeping/last_committed.h"
#include "snapshot/saves/pending_save.h"
#include "snapshot/saves/save_outcome.h"
#include "snapshot/saves/save_phases.h"
#include "storage/shard/write/shard_writer.h"
#include "storage/store/attempt_sink.h"
#include "storage/store/store.h"

namespace tidemark {

// Owned by the thread that calls Consume, and with it the writer and its ring; ForgetCommitted, Reusable, is_writing,
// Published and Hurry are thread-safe. Writes a snapshot while it is being staged; where there are companions, when it
// is staged and they have taken it in.
class Persister final : public SnapshotConsumer {
 public:
  // Told of each save, on the persister's thread: when its memory is free, before `committed` resolves. Of a snapshot
  // that was not to be saved it is not told; its fate is that of its evaluators.
  using OnSettled = std::function<void(SaveOutcome)>;

  // Saves go to `attempts`, which is the store itself or a rank's part of it. `files`, `store`, `attempts` and
  // `companions` are not owned and outlive the persister. `reuse`: see CheckpointerOptions. Neither
  // function is null.
  Persister(storage::FileSystem& files, storage::Store& store, storage::AttemptSink& attempts, Companions& companions,
            const storage::ShardWriterOptions& options, bool reuse, std::function<void(std::string_view)> warn,
            OnSettled on_settled);

  void Consume(std::shared_ptr<const StagedSnapshot> snapshot) override;

  // The other ranks hear of it. A store of one process has no record of it.
  void Refused(int64_t step, absl::Time created, const absl::Status& why) override;

  // What is on disk now is not reused any more.
  void ForgetCommitted() { last_committed_.Forget(); }

  // To what the next save can refer; null: to nothing, or no save has begun yet.
  std::shared_ptr<const storage::ReusableShard> Reusable() const { return last_committed_.Known(); }

  // The save waits in the stream, or will.
  void Published(std::shared_ptr<const PendingSave> save);

  // The trainer waits for the end of all saves so far: they compress no more than the disk leaves time for
  // (Compression::kAuto). Who waits for a save's future hurries that one, and those before it.
  void Hurry();

  // Whether a save is being written or committed.
  bool is_writing() const { return is_writing_; }

 private:
  // `phases`: what the persister did before that.
  absl::Status Persist(const StagedSnapshot& snapshot, SavePhases phases, SaveOutcome& outcome);
  absl::Status UpdateCompanions(const StagedSnapshot& snapshot);
  absl::Status PersistOnce(const StagedSnapshot& snapshot, SavePhases phases, SaveOutcome& outcome);
  // Whether the save that is being written still compresses everything. Thread-safe.
  bool CompressesAll(const PendingSave& save, SavePhases::Time until) const;
  // A shard on disk, and what is to be recorded of it.
  struct Written {
    storage::WrittenShard shard;
    storage::StepRecord record;
    storage::PhasesRecord phases;
    uint64_t times_forgotten = 0;  // LastCommitted's, before the shard referred to that
  };
  absl::Status WriteAttempt(const StagedSnapshot& snapshot, const storage::ShardIdentity& identity, SavePhases& phases,
                            SaveOutcome& outcome, Written& written);
  bool is_rank() const { return &attempts_ != &store_; }
  std::shared_ptr<const storage::ReusableShard> ToReferTo(const storage::ShardIdentity& identity);
  void TakeInfoOfAllRanks(StepInfo& info);
  void WarnOfFallbacks(const std::map<std::string, std::string>& properties);

  storage::FileSystem& files_;
  storage::Store& store_;
  storage::AttemptSink& attempts_;
  Companions& companions_;
  const storage::ShardWriterOptions options_;
  const uint64_t reuse_saves_max_;
  const bool reuse_;
  const std::function<void(std::string_view)> warn_;
  const OnSettled on_settled_;
  mutable absl::Mutex mutex_;
  int64_t hurried_through_ ABSL_GUARDED_BY(mutex_) = 0;  // PendingSave::number of the last save that Hurry was for
  std::vector<std::weak_ptr<const PendingSave>> published_ ABSL_GUARDED_BY(mutex_);  // those that have not ended
  std::unique_ptr<storage::ShardWriter> writer_;  // made on the persister's thread
  bool warned_of_fallbacks_ = false;
  std::atomic<bool> is_writing_ = false;
  std::shared_ptr<const storage::ReusableShard> outdated_;  // goes when the save has been settled
  LastCommitted last_committed_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_PERSISTER_H_
