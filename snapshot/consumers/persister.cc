#include "snapshot/consumers/persister.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "snapshot/ranks/replicated_entries.h"
#include "snapshot/stopwatch.h"
#include "storage/io/exception_status.h"

namespace tidemark {
namespace {

// The snapshot's bytes are where they will be, and are read when they are there.
storage::ShardContents MakeContents(const StagedSnapshot& snapshot) {
  storage::ShardContents contents;
  const StagingPlan& plan = snapshot.plan();
  std::vector<size_t> written;                             // by entry of the shard: its index in the snapshot
  std::vector<int64_t> in_shard(plan.specs().size(), -1);  // and back
  written.reserve(plan.specs().size());
  for (size_t i = 0; i < plan.specs().size(); ++i) {
    if (!snapshot.IsWrittenHere(i)) continue;
    in_shard[i] = static_cast<int64_t>(written.size());
    written.push_back(i);
  }
  contents.memory = {snapshot.block().data(), snapshot.block().bytes()};
  contents.memory_lifetime = snapshot.block().memory().data;
  contents.properties = {{"staging", snapshot.staging()}, {"staging_memory", snapshot.block().memory().kind}};
  if (snapshot.structure() != storage::Digest128{}) {
    contents.properties[std::string(kReplicatedProperty)] = "true";
  }
  contents.entries.reserve(written.size());
  for (const size_t i : written) {
    const int64_t alias_of = plan.placements()[i].alias_of;  // tied entries are written by the same rank
    contents.entries.push_back({.spec = snapshot.SpecOf(i),
                                .bytes = snapshot.bytes(i),
                                .alias_of = alias_of < 0 ? -1 : in_shard[static_cast<size_t>(alias_of)]});
  }
  contents.wait_until_ready = [&snapshot, written = std::move(written)](size_t entry, uint64_t end) {
    const absl::Status status = snapshot.pending_save()->CheckDeadline();
    return status.ok() ? snapshot.WaitFor(written[entry], end) : status;
  };
  contents.created_unix_ns = absl::ToUnixNanos(snapshot.created());
  contents.blocked_ns = [&snapshot] {
    snapshot.progress()->WaitUntilEnded().IgnoreError();  // a state without bytes has nothing that was waited for
    return static_cast<uint64_t>(absl::ToInt64Nanoseconds(snapshot.blocked()));
  };
  contents.metrics = snapshot.metrics();
  contents.user_metadata = snapshot.user_metadata();
  return contents;
}

storage::StepRecord MakeRecord(const StagedSnapshot& snapshot, const storage::ShardIdentity& identity,
                               const storage::WrittenShard& shard) {
  storage::StepRecord record;
  StepInfo& info = record.info;
  info.step = identity.step;
  info.attempt = storage::ToHex(identity.attempt.bytes);
  info.sequence = identity.sequence;
  info.created = snapshot.created();
  info.blocked = snapshot.blocked();
  info.world_size = identity.world_size;
  info.metrics = snapshot.metrics();
  info.user_metadata = snapshot.user_metadata();
  info.entry_count = shard.entry_count;
  info.logical_bytes = shard.logical_bytes;
  info.stored_bytes = shard.footer.file_bytes;
  info.reused_bytes = shard.reused_bytes;
  if (shard.reusable != nullptr) record.references = shard.reusable->index.files;
  record.shards.Add(identity.rank, shard.footer.file_bytes, shard.footer.index_digest);
  return record;
}

// A rank writes whole shards again (ToReferTo), and no single chunks because of their age.
storage::ShardWriterOptions OptionsOf(storage::ShardWriterOptions options, bool is_rank) {
  if (is_rank) options.reuse_saves_max = 0;
  return options;
}

}  // namespace

Persister::Persister(storage::FileSystem& files, storage::Store& store, storage::AttemptSink& attempts,
                     Companions& companions, const storage::ShardWriterOptions& options, bool reuse,
                     std::function<void(std::string_view)> warn, OnSettled on_settled)
    : files_(files),
      store_(store),
      attempts_(attempts),
      companions_(companions),
      options_(OptionsOf(options, is_rank())),
      reuse_saves_max_(options.reuse_saves_max),
      reuse_(reuse),
      warn_(std::move(warn)),
      on_settled_(std::move(on_settled)),
      last_committed_(files, store, is_rank(), warn_) {}

void Persister::Consume(std::shared_ptr<const StagedSnapshot> snapshot) {
  if (!snapshot->persist()) {
    // Holds it until its staging has ended, so that whoever lets go of it last finds that it has.
    const absl::Status staged = snapshot->progress()->WaitUntilEnded();
    if (!staged.ok() || companions_.empty()) return;
    storage::BestEffort([&] {
      if (absl::Status status = companions_.Update(*snapshot); !status.ok()) {
        warn_(fmt::format("step {} was not taken in: {}", snapshot->step(), std::string(status.message())));
      }
    });
    return;
  }
  const std::shared_ptr<const PendingSave> pending_save = snapshot->pending_save();
  char what[64];  // a string would need memory
  const auto end = fmt::format_to_n(what, sizeof(what), "the save of step {}", snapshot->step()).out;
  const std::string_view named(what, static_cast<size_t>(end - what));
  SaveOutcome outcome;
  outcome.save = pending_save->number();
  outcome.step = outcome.info.step = snapshot->step();
  is_writing_ = true;
  outcome.status = Guarded(named, [&] {
    SavePhases phases(snapshot->phases().called());
    phases.Add("queue", kPersisterLane, snapshot->published(), SavePhases::Now());
    return Persist(*snapshot, std::move(phases), outcome);
  });
  is_writing_ = false;
  outcome.held = snapshot->held();
  outcome.behind = snapshot->behind();
  // Whoever waits for the commit may count on the memory.
  snapshot.reset();
  const absl::Status status = outcome.status;
  Guarded("the end of a save", [&] { on_settled_(std::move(outcome)); }).IgnoreError();
  pending_save->Settle(status);
  outdated_.reset();
}

void Persister::Published(std::shared_ptr<const PendingSave> save) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(published_, [](const auto& earlier) { return earlier.expired(); });
  published_.push_back(std::move(save));
}

void Persister::Hurry() {
  absl::MutexLock lock(&mutex_);
  hurried_through_ = std::max(hurried_through_, PendingSave::LastNumber());
}

bool Persister::CompressesAll(const PendingSave& save, SavePhases::Time until) const {
  if (SavePhases::Now() >= until) return false;
  absl::MutexLock lock(&mutex_);
  if (save.number() <= hurried_through_) return false;
  return std::none_of(published_.begin(), published_.end(), [&save](const auto& published) {
    const std::shared_ptr<const PendingSave> pending = published.lock();
    return pending != nullptr && pending->number() >= save.number() && pending->committed()->awaited();
  });
}

void Persister::Refused(int64_t step, absl::Time created, const absl::Status& why) {
  if (!is_rank()) return;
  const absl::StatusOr<storage::ShardIdentity> identity = attempts_.BeginAttempt(step, {});
  if (identity.ok()) attempts_.AbandonAttempt(*identity, created, why).IgnoreError();
}

// Of a failure there is to be a record, as of every other one.
absl::Status Persister::UpdateCompanions(const StagedSnapshot& snapshot) {
  if (companions_.empty() || !snapshot.progress()->WaitUntilEnded().ok()) return absl::OkStatus();
  const absl::Status status = companions_.Update(snapshot);
  if (status.ok()) return status;
  absl::StatusOr<storage::ShardIdentity> identity = attempts_.BeginAttempt(snapshot.step(), snapshot.structure());
  if (identity.ok()) attempts_.AbandonAttempt(*identity, snapshot.created(), status).IgnoreError();
  return absl::Status(status.code(),
                      fmt::format("step {} was not committed: {}", snapshot.step(), std::string(status.message())));
}

absl::Status Persister::Persist(const StagedSnapshot& snapshot, SavePhases phases, SaveOutcome& outcome) {
  const SavePhases::Time begin = SavePhases::Now();
  if (absl::Status status = UpdateCompanions(snapshot); !status.ok()) return status;
  if (!companions_.empty()) phases.Add("companions", kPersisterLane, begin, SavePhases::Now());
  absl::Status status = PersistOnce(snapshot, phases, outcome);
  // What the trainer heard of is not the disk's fault.
  if (absl::Status staged = snapshot.progress()->WaitUntilEnded(); !staged.ok()) return staged;
  // A device error can be one bad block. After it nothing is tried again on the same file; a whole new attempt may fare
  // better. A full disk, a missing permission or a broken store would not.
  if (absl::IsInternal(status)) {
    warn_(fmt::format("step {} is written again after: {}", snapshot.step(), std::string(status.message())));
    status = PersistOnce(snapshot, phases, outcome);
  }
  if (status.ok()) return status;
  const std::string why(status.message());
  // The next entry of the journal decides.
  if (absl::IsUnknown(status)) {
    return absl::UnknownError(fmt::format("it is not known whether step {} is committed: {}", snapshot.step(), why));
  }
  return absl::Status(status.code(), fmt::format("step {} was not committed: {}", snapshot.step(), why));
}

absl::Status Persister::PersistOnce(const StagedSnapshot& snapshot, SavePhases phases, SaveOutcome& outcome) {
  absl::StatusOr<storage::ShardIdentity> identity = attempts_.BeginAttempt(snapshot.step(), snapshot.structure());
  if (!identity.ok()) return identity.status();
  Written written;
  const absl::Status status =
      Guarded("the shard of a step", [&] { return WriteAttempt(snapshot, *identity, phases, outcome, written); });
  if (!status.ok()) return attempts_.AbandonAttempt(*identity, snapshot.created(), status);
  // From here on the files are the store's: a commit whose outcome is unknown may yet turn out to be one.
  const SavePhases::Time committing = SavePhases::Now();
  const absl::Status committed =
      Guarded("the commit of a step", [&] { return attempts_.CommitAttempt(written.record, &written.phases); });
  if (!committed.ok()) {
    // If it is on disk, that step is the latest, and nothing keeps the files of the one before.
    last_committed_.Forget();
    if (absl::IsUnknown(committed)) outcome.info.attempt = std::move(written.record.info.attempt);
    return committed;
  }
  outcome.info = std::move(written.record.info);
  if (is_rank()) TakeInfoOfAllRanks(outcome.info);
  outdated_ = std::move(written.shard.reusable);
  if (reuse_) outdated_ = last_committed_.Set(std::move(outdated_), written.times_forgotten);
  storage::BestEffort([&] {
    phases.Add("commit", kPersisterLane, committing, SavePhases::Now());
    for (const storage::RankWait& wait : attempts_.RankWaits()) {
      phases.AddWait("vote", fmt::format("rank {}", wait.rank), wait.begin, wait.end);
    }
    outcome.commit = phases.Took("commit");
    written.phases.phases = phases.Get();
    store_.NotePhases(std::move(written.phases));
    WarnOfFallbacks(written.shard.properties);
  });
  return absl::OkStatus();
}

absl::Status Persister::WriteAttempt(const StagedSnapshot& snapshot, const storage::ShardIdentity& identity,
                                     SavePhases& phases, SaveOutcome& outcome, Written& written) {
  if (writer_ == nullptr) {
    auto writer = storage::ShardWriter::Create(files_, options_);
    if (!writer.ok()) return writer.status();
    writer_ = *std::move(writer);
  }
  storage::ShardContents contents = MakeContents(snapshot);
  if (!companions_.empty() && snapshot.progress()->WaitUntilEnded().ok()) {
    if (absl::Status status = companions_.AppendTo(contents); !status.ok()) return status;
  }
  written.times_forgotten = last_committed_.times_forgotten();
  const std::shared_ptr<const storage::ReusableShard> reusable = ToReferTo(identity);
  contents.reuse = reusable.get();
  contents.compress_all = [this, save = snapshot.pending_save(), until = snapshot.compress_all_until()] {
    return CompressesAll(*save, until);
  };
  contents.recycle = attempts_.Recycle(identity);
  const Stopwatch writing;
  absl::StatusOr<storage::WrittenShard> shard =
      writer_->Write(store_.layout().shard(identity.step, identity.attempt, identity.rank, identity.world_size),
                     identity, std::move(contents));
  outcome.write = writing.elapsed();
  if (!shard.ok()) return shard.status();
  // Of a state without bytes nothing had to be waited for.
  absl::Status before_commit = snapshot.progress()->WaitUntilEnded();
  before_commit.Update(snapshot.pending_save()->CheckDeadline());
  if (!before_commit.ok()) return before_commit;
  written.shard = *std::move(shard);
  written.record = MakeRecord(snapshot, identity, written.shard);
  phases.AddWrite(written.shard.times, written.shard.footer.file_bytes);
  phases.Prepend(snapshot.phases());
  written.phases = {.step = snapshot.step(), .attempt = written.record.info.attempt, .phases = phases.Get()};
  return absl::OkStatus();
}

// Of a rank all chunks lie in one file, and they are written again together: the ranks, whose attempts have the same
// numbers, do so in one save. It looks at the journal first, where another rank may have found damage.
std::shared_ptr<const storage::ReusableShard> Persister::ToReferTo(const storage::ShardIdentity& identity) {
  if (!reuse_) return nullptr;
  if (!is_rank()) return last_committed_.Get();
  if (!store_.is_holder() && !store_.Look().ok()) return nullptr;
  std::shared_ptr<const storage::ReusableShard> shard = last_committed_.Get();
  if (shard == nullptr || reuse_saves_max_ == 0) return shard;
  return identity.sequence - shard->identity.sequence < reuse_saves_max_ ? shard : nullptr;
}

// This rank's record has its own shard only. Best effort.
void Persister::TakeInfoOfAllRanks(StepInfo& info) {
  storage::BestEffort([&] {
    if (!store_.is_holder() && !store_.Look().ok()) return;
    absl::StatusOr<std::optional<storage::StepRecord>> record = store_.catalog().Find(info.step);
    if (!record.ok() || !record->has_value() || (*record)->info.attempt != info.attempt) return;
    info = std::move((*record)->info);
  });
}

// Once for a checkpointer: what the machine does not have is slower, never wrong.
void Persister::WarnOfFallbacks(const std::map<std::string, std::string>& properties) {
  if (std::exchange(warned_of_fallbacks_, true)) return;
  const auto value = [&](const std::string& key) {
    const auto found = properties.find(key);
    return found == properties.end() ? std::string() : found->second;
  };
  if (const std::string why = value("io_reason"); !why.empty()) {
    warn_(fmt::format("writing with threads, because io_uring is not available: {}", why));
  }
  if (value("direct_io") == "false")
    warn_("writing through the page cache, because the file system does not support O_DIRECT");
  if (value("vectors") == "portable") warn_("compression is several times slower than usual: the CPU has no AVX2");
  if (value("allocate") == "false")
    warn_("files are not preallocated, because the file system does not support fallocate");
  if (const std::string why = value("io_registered"); why != "true" && value("io") == "io_uring") {
    warn_(fmt::format("io_uring has no registered memory, which costs CPU at every write: {}", why));
  }
  if (const std::string why = value("priority"); !why.empty()) {
    warn_(fmt::format("saves run at the trainer's priority: {}", why));
  }
  if (const std::string memory = value("staging_memory"); memory.starts_with("not locked")) {
    warn_(fmt::format("staging memory may be swapped out: {}", memory));
  }
}

}  // namespace tidemark
