// What an AsyncCheckpointer is made of.

#ifndef TIDEMARK_SNAPSHOT_CHECKPOINTER_IMPL_H_
#define TIDEMARK_SNAPSHOT_CHECKPOINTER_IMPL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "snapshot/checkpointer_options.h"
#include "snapshot/consumers/companions.h"
#include "snapshot/consumers/compression_time.h"
#include "snapshot/consumers/evaluation_claims.h"
#include "snapshot/consumers/persister.h"
#include "snapshot/consumers/snapshot_stream.h"
#include "snapshot/deadline.h"
#include "snapshot/housekeeping/housekeeper.h"
#include "snapshot/housekeeping/scrubber.h"
#include "snapshot/listeners.h"
#include "snapshot/process/machine.h"
#include "snapshot/process/owner_process.h"
#include "snapshot/ranks/part_of_state.h"
#include "snapshot/ranks/rank_exchange.h"
#include "snapshot/restore/restore_walk.h"
#include "snapshot/saves/open_saves.h"
#include "snapshot/saves/save_deadlines.h"
#include "snapshot/saves/save_outcome.h"
#include "snapshot/saves/save_request.h"
#include "snapshot/serial_executor.h"
#include "snapshot/staging/open_staging.h"
#include "snapshot/staging/stager.h"
#include "snapshot/statistics_collector.h"
#include "storage/io/file_system.h"
#include "storage/io/warn_once.h"
#include "storage/ranks/ranked_attempts.h"
#include "storage/store/store.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

// Owned by the checkpointer, and from the start of closing on by the thread that closes it too: whichever comes to its
// end last destroys it.
struct AsyncCheckpointer::Impl : std::enable_shared_from_this<AsyncCheckpointer::Impl> {
  // How long the destructor waits for the store's release once nothing is left to wait for: syncs of the journal.
  static constexpr absl::Duration kReleaseTimeout = absl::Seconds(10);

  Impl(const Machine& machine, CheckpointerOptions given);

  // Once, before anything else.
  absl::Status OpenStore();
  absl::Status OpenRest();
  // Of a job of several ranks: the store, and this rank's part in its saves. On every rank the same error.
  absl::Status OpenRanks(storage::StoreOptions store_options);
  // Of rank 0, before a step of several ranks is committed: whether the shards make up a step that can be read. On the
  // persister's thread.
  absl::Status CheckJoined(const storage::StepRecord& record);
  // Precondition: there is a persister.
  absl::Status StartScrubber();
  // Adds to the modes that the store has recorded, and returns all of them. A failure to record is a warning.
  storage::BestModes RecordBestModes(const storage::BestModes& modes);
  // Records the modes that keep_best gives. kInvalidArgument: a rule has no mode, and neither the record nor the
  // metric's name gives one.
  absl::Status RecordRetentionModes();
  // kInvalidArgument: a rule of keep_best gives another mode for one of these metrics.
  absl::Status CheckBestModes(const storage::BestModes& modes) const;

  // kFailedPrecondition: after Close, or in a forked child.
  absl::Status CheckOpen() const;
  // kFailedPrecondition: this rank does not hold the store.
  absl::Status CheckIsHolder() const;
  absl::Status CheckMayAwaitEvaluators() const;  // also kFailedPrecondition: OnOwnThread()

  // `last`: the state, where this is the last save, of which evaluators may not come to their end.
  absl::Status CheckSave(int64_t step, const SaveRequest& save, const State* last = nullptr) const;

  // Whether what is in the state now cannot be what this committed step has: since then it has been restored as a whole
  // from a step before, against which nothing is known.
  bool WasRolledBackBehind(const StepInfo& info, const State& state) const;
  void NoteRestore(const State& state, const RestoreOptions& restore, const absl::StatusOr<RestoreReport>& report);

  // AsyncCheckpointer::Save and Evaluate. A `last_chance` is a deadline, and the save is the last one. It is made even
  // after failures, and does not wait for evaluators. Under every WhenFull it waits until then for an earlier copy of
  // the state and for room. An unhealthy step is replaced only as PreemptionGuard::SaveAndClose says.
  absl::StatusOr<SaveHandle> Save(const Deadline* last_chance, int64_t step, State& state, const SaveRequest& request);
  // The same without the other ranks. `*published`: the consumers have the save, and tell what becomes of it.
  absl::StatusOr<SaveHandle> SaveHere(const Deadline* last_chance, int64_t step, State& state,
                                      const SaveRequest& request, absl::Time created, bool* published);

  // At the start of a save: waits until the state may be copied, and says why it is not to be. With a `last_chance`
  // waits until then. `phases` gets "earlier save".
  absl::Status AwaitSave(int64_t step, const State& state, const SaveRequest& save, const Deadline* last_chance,
                         SavePhases* phases);

  // Waits for evaluators and for memory, and copies what cannot wait. Null: there is no room; see Stager::Begin. The
  // snapshot gets `phases`, with what this took, `*held` the waits.
  absl::StatusOr<std::unique_ptr<StagedSnapshot>> BeginSnapshot(int64_t step, State& state, const SaveRequest& save,
                                                                absl::Time created, SavePhases phases,
                                                                const Deadline* last_chance, HeldTimes* held);

  // The `committed` of the first failed save whose failure the trainer has not read; ok: there is none. Warns of each
  // such failure once.
  Future EarlierFailure();

  // Blocks until every save is settled.
  void Settle();

  // Committed steps that retention keeps until this evaluator has said something of them, which it has not, and which
  // no save will give it; ascending. If retention awaits it, waits for the saves in flight, for they are such steps
  // too.
  absl::StatusOr<std::vector<EarlierStep>> StepsThatAwait(const EvaluatorOptions& evaluator);

  // The trainer may not have waited for an overlapped save: then its tensors, and its State, are still being read.
  // False: they still are at the deadline.
  bool WaitUntilTensorsAreRead(const Deadline& deadline = Deadline::Never());

  absl::Status StartStagingThread();

  // What this rank saves of the state in a job whose ranks share entries; null in any other.
  std::shared_ptr<PartOfState> PartOf(State& state);
  // The same where a save copies no more than that; null: it copies the whole state.
  std::shared_ptr<PartOfState> PartToStage(State& state);
  // Takes the memory that the next save will need, and has a thread touch it, while the training begins; page-locked
  // memory it takes at once. An error is the state's.
  absl::Status PrepareInBackground(State& state, bool is_restored);
  // Tells the snapshot which entries other ranks write. `part`: what was staged; null: all of `state`.
  void NoteSharedEntries(State& state, const std::shared_ptr<PartOfState>& part, StagedSnapshot& snapshot);

  // What Save returns where WhenFull keeps it from waiting for room.
  absl::StatusOr<SaveHandle> SkipSave(int64_t step, absl::Duration blocked, SaveHandle handle);

  // What is known against a step, recorded or not, "evaluator: reason"; empty: nothing. Waits for nobody.
  std::string WhyUnhealthy(const StepInfo& info) const;

  // For RestoreOptions::healthy_only: waits so long for the evaluators. Warns of those that have not come to their end.
  void AwaitVerdicts(absl::Duration timeout);

  // For healthy_only it has what evaluators said recorded, and looks into the journal for what workers have reported.
  // Warns of an error of that.
  RestoreWalk NewRestoreWalk(const RestoreOptions& restore);
  // AsyncCheckpointer::Restore without the other ranks.
  absl::StatusOr<RestoreReport> RestoreSelected(const StepSelector& step, State& state, const RestoreOptions& given);
  // The same for a job of several ranks.
  absl::StatusOr<RestoreReport> RestoreRanks(const StepSelector& step, State& state, RestoreOptions restore);
  // What rank 0's retention and Delete have done meanwhile, so that all ranks know the same steps. Best effort.
  void LookAsOtherRank();
  // Once.
  void WarnOfLostExchange(const absl::Status& why);
  // Whether the options ask for a save at this step, as far as this process can tell.
  absl::StatusOr<bool> IsDue(int64_t step) const;
  absl::StatusOr<std::vector<StepInfo>> Steps() const;

  // Copies of a state's tensors on their devices, and the memory that they take there.
  struct Image {
    std::unique_ptr<State::DeviceImage> copies;
    uint64_t bytes = 0;
  };
  // Copies the device tensors on their devices. If the save must go on as a blocking one, `copies` is null and
  // `*why_not` is set.
  absl::StatusOr<Image> TakeImage(State& state, const StagingPlan& plan, std::string* why_not);

  // Copies the tensors on the staging thread, of `part` if it is not null; resolves when that is done. `check` may be
  // null.
  Future StageBehind(State& state, std::shared_ptr<PartOfState> part, std::shared_ptr<OpenStaging> staging,
                     std::shared_ptr<OverlapCheck> check);

  // Brings a device's copies to the host on the staging thread.
  void DrainBehind(Image image, std::shared_ptr<OpenStaging> staging);

  // Begins the save and gives the snapshot to its consumers and evaluators. Throws where no consumer will get it.
  std::shared_ptr<OpenStaging> Publish(std::shared_ptr<StagedSnapshot> snapshot,
                                       const std::shared_ptr<HeldTimes>& held);

  // Tells the housekeeper and the statistics that the save is about to be published. Of one that is not to be saved its
  // end is told when the last evaluator has let go of it; `held` is for that, and is to be filled by then.
  void BeginSave(const StagedSnapshot& snapshot, const std::shared_ptr<HeldTimes>& held);
  // On whatever thread found out. Throws nothing.
  void EndSave(SaveOutcome outcome);

  CheckpointerStatistics Statistics() const;

  // See AsyncCheckpointer::Close. Saves and evaluators get the time until `drained`, and the rest is for recording what
  // is left and for releasing the store.
  absl::Status Close(const Deadline& drained, const Deadline& released);
  // kDeadlineExceeded of a call ("" or "close FOLDER: "), with kSaveRunsPayload if `saves` is not 0.
  static absl::Status StillRunning(std::string_view call, const std::vector<std::string>& running, size_t saves);
  // The destructor's work in the process that opened the store.
  void CloseAndLeave();
  // Whether the caller is a thread that Close would wait for.
  bool OnOwnThread() const;
  // Leaves what still runs to itself.
  void Abandon();
  absl::Status StartClosing();
  // Never destroys it: its threads are missing in a forked child, or cannot be joined.
  static void LeaveToItself(std::shared_ptr<Impl> impl);
  // On a thread of its own: waits for what is left, records what is left, and releases the store.
  void CloseDown();

  // What a state was filled with as a whole.
  struct Restored {
    const State* state = nullptr;
    StepInfo info;
    uint64_t last_sequence = 0;  // of what was committed by then
  };

  // Constant after Open.
  const OwnerProcess process;
  const CheckpointerOptions options;
  const std::function<absl::Time()> now;  // the wall clock
  const storage::ShardReadOptions read_options;
  const std::shared_ptr<storage::FileSystem> files_owner;  // shared with evaluators that outlive this
  storage::FileSystem& files;
  const absl::Duration scrub_pass_interval;
  const Listeners listeners;
  uint64_t sequence_at_open = 0;  // of the last step that an earlier process committed

  // Owned by the trainer's thread.
  std::unique_ptr<RankExchange> exchange;  // null: a job of one process
  bool warned_of_lost_exchange = false;
  storage::WarnOnce patterns_without_entry;  // of RankOptions::replicated
  bool closed = false;                       // Close has been called
  bool close_ran_out = false;                // of time, when it was called last
  std::atomic<int64_t> save_interval_steps = 0;
  absl::Time last_save;
  std::optional<int64_t> last_saved_step;  // by this process; before that, the latest committed one at Open
  std::optional<Restored> last_restore;    // empty if it failed, or filled only a part
  Future last_staged;
  std::shared_ptr<StagingProgress> last_progress;             // of the last save
  std::shared_ptr<const StagingPlan> last_plan;               // and where its entries are
  std::shared_ptr<const PartOfState::LeftOut> last_left_out;  // and which are not there; null: all are
  std::vector<std::shared_ptr<PartOfState>> parts;            // of the last few states that were saved, newest last
  std::shared_ptr<StagingProgress> last_overlapped;  // of the last save that read the State after Save returned
  Stager stager;
  // Made when everything that was given has been done; says when the store is released.
  std::optional<Future> closed_down;
  // A list of those that are left to themselves. Its links are in its elements: a destructor adds to it, and there may
  // be no memory.
  std::shared_ptr<Impl> left_to_itself;
  Impl* left_before = nullptr;
  absl::Status lost;  // evaluations that could not be recorded; from when that resolves on, until it is returned

  // Thread-safe. Destroyed from the bottom up: whoever stages stops before the stream, the stream before its consumer,
  // that before the housekeeper, that before the store. The housekeeper stays until the end, but it is stopped before
  // the store goes.
  OpenSaves open_saves;
  StatisticsCollector statistics;
  std::atomic<uint64_t> device_bytes_in_use = 0;  // of images that are not drained
  std::unique_ptr<storage::Store> store;
  std::unique_ptr<storage::RankedAttempts> ranked_attempts;  // null: a job of one process
  std::unique_ptr<EvaluationClaims> claims;
  std::unique_ptr<Housekeeper> housekeeper;
  Companions companions;                                      // the persister's while it has something to do
  std::optional<std::pair<uint64_t, uint64_t>> checked_size;  // entries and bytes; the persister's
  CompressionTime compression_time{CompressionMax(options)};  // the trainer's
  std::unique_ptr<Persister> persister;
  std::unique_ptr<Scrubber> scrubber;  // null: there is no scrub
  std::unique_ptr<SnapshotStream> stream;
  std::unique_ptr<SaveDeadlines> save_deadlines;   // null: saves have no limit
  std::unique_ptr<SerialExecutor> staging_thread;  // made by the first save that is not a blocking one
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CHECKPOINTER_IMPL_H_
