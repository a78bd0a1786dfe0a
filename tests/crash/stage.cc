#include "tests/crash/stage.h"

#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "rocksdb/env.h"
#include "storage/io/check.h"
#include "storage/journal/journal_files.h"
#include "storage/retention/retention.h"
#include "storage/store/repair/repair.h"
#include "storage/store/step_changes.h"
#include "storage/store/store.h"
#include "storage/store/store_identity.h"
#include "tests/crash/oracle.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"

namespace tidemark::crash {
namespace {

// While it lives, no compaction begins; its destruction waits for those that were to. RocksDB has one thread for them
// in a process, where every database may use one, and that does one thing after the other. No database must wait for
// its compactions meanwhile, as SettleList does; one that is closed takes them back. What a compaction asks for in turn
// is not waited for: at these sizes there is none. Owned by one thread.
class CompactionHold {
 public:
  CompactionHold() {
    env_.IncBackgroundThreadsIfNeeded(1, kThread);  // there is none before the first database
    env_.Schedule([](void* hold) { static_cast<CompactionHold*>(hold)->over_.WaitForNotification(); }, this, kThread);
  }
  ~CompactionHold() {
    over_.Notify();
    env_.Schedule([](void* hold) { static_cast<CompactionHold*>(hold)->compacted_.Notify(); }, this, kThread);
    compacted_.WaitForNotification();
  }
  CompactionHold(const CompactionHold&) = delete;
  CompactionHold& operator=(const CompactionHold&) = delete;

 private:
  static constexpr rocksdb::Env::Priority kThread = rocksdb::Env::Priority::LOW;

  rocksdb::Env& env_ = *rocksdb::Env::Default();
  absl::Notification over_;
  absl::Notification compacted_;
};

}  // namespace

CheckpointerOptions SmallOptions(std::vector<std::string>* warnings) {
  CheckpointerOptions options;
  options.directory = kStore;
  // Which chunks kThroughput compresses depends on the machine.
  options.compression = Compression::kSpace;
  options.tuning.chunk_bytes = 4096;
  options.tuning.codec_threads = 1;
  options.tuning.io = IoBackend::kThreads;
  options.tuning.io_depth = 1;
  options.tuning.background_nice = 0;
  options.tuning.poll_interval = absl::InfiniteDuration();
  options.tuning.scrub_bytes_per_second_max = 0;
  options.observer = ObserverOf({.warning = [warnings](std::string_view line) {
    if (warnings != nullptr) warnings->emplace_back(line);
  }});
  return options;
}

absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> OpenOrderly(storage::FileSystem& files,
                                                               CheckpointerOptions options) {
  const CompactionHold hold;
  Machine machine(files);
  machine.now = [] { return absl::FromUnixSeconds(1'800'000'000); };
  return CheckpointerOnFileSystem::Open(machine, std::move(options));
}

void Stage::Expect(const absl::Status& status, std::string_view what) {
  if (!status.ok()) ADD_FAILURE() << what << ": " << status;
}

void Stage::Open(const CheckpointerOptions& options) {
  CheckpointerOptions small = SmallOptions();
  small.retention = options.retention;
  small.reuse = options.reuse;
  // Files are removed on the thread that tells of this, and right after it.
  small.observer = ObserverOf({.deleted =
                                   [this](int64_t step, std::string_view) {
                                     if (step == discarded_last_) disk_.Mark(Discarded(discards_after_));
                                   },
                               .evaluated =
                                   [this](int64_t, const Evaluation&) {
                                     if (const auto report = std::exchange(next_report_, nullptr)) report();
                                   },
                               .warning = [](std::string_view) {}});
  if (options.compression == Compression::kNone) small.compression = Compression::kNone;
  if (small.retention.any()) {
    small.retention.keep = [this](const StepInfo&) {
      gate_.Pass();
      return false;
    };
  }
  auto opened = OpenOrderly(files_, std::move(small));
  Expect(opened.status(), "open");
  storage::Check(opened.ok(), "a scenario could not open its store");
  checkpointer_ = *std::move(opened);
  Tidy();
}

absl::Status Stage::TrySave(int64_t step, int64_t content) {
  disk_.Mark(Saving(step, content));
  trainer_.SetTo(step, content);
  auto save =
      checkpointer_->Save(step, trainer_.state, {.metrics = {{"loss", LossOf(step, content)}}, .overwrite = true});
  const absl::Status status = save.ok() ? save->committed().Wait() : save.status();
  if (!status.ok()) return status;
  disk_.Mark(Saved(step, content));
  steps_[step] = content;
  return status;
}

void Stage::Save(int64_t step, int64_t content, const std::vector<int64_t>& going) {
  gate_.Shut();
  Expect(TrySave(step, content), "save");
  LetGoOf(going);
  gate_.Open();
  ExpectGone(going);
}

void Stage::LetGoOf(const std::vector<int64_t>& going) {
  for (const int64_t gone : going) disk_.Mark(Deleting(gone));
}

void Stage::ExpectGone(const std::vector<int64_t>& going) {
  Tidy();
  const auto steps = checkpointer_->Steps();
  Expect(steps.status(), "list the steps");
  if (!steps.ok()) return;
  std::map<int64_t, StepState> states;
  for (const StepInfo& info : *steps) states[info.step] = info.state;
  const auto expect = [&](int64_t step, StepState state) {
    const auto found = states.find(step);
    if (found != states.end() && found->second == state) return;
    ADD_FAILURE() << "step " << step << " is " << (found == states.end() ? "unknown" : StepStateName(found->second))
                  << ", not " << StepStateName(state);
  };
  for (const int64_t gone : going) {
    expect(gone, StepState::kDeleted);
    disk_.Mark(LetGo(gone));
    steps_.erase(gone);
  }
  for (const auto& [step, content] : steps_) expect(step, StepState::kCommitted);
}

void Stage::SaveInVain(int64_t step, int64_t content) {
  const absl::Status status = TrySave(step, content);
  if (status.ok() || absl::IsUnknown(status)) ADD_FAILURE() << "a save was not refused: " << status;
  disk_.Mark(Refused(step, content));
  Tidy();
}

void Stage::SaveIntoTheUnknown(int64_t step, int64_t content) {
  const absl::Status status = TrySave(step, content);
  if (!absl::IsUnknown(status)) ADD_FAILURE() << "it is known what became of a save: " << status;
  // As in Tidy, for which the disk may be too bad. The first one may come in the round that the save has asked for.
  for (int i = 0; i < 2; ++i) checkpointer_->RetentionPlan().IgnoreError();
}

void Stage::Report(int64_t step, const std::string& evaluator, double value) {
  const std::string metric = evaluator + "/score";
  disk_.Mark(Reporting(step, metric, value));
  Expect(checkpointer_->ReportMetrics(step, evaluator, {{"score", value}}).Wait(), "report");
  disk_.Mark(Reported(step, metric, value));
  Tidy();
}

void Stage::ReportTogether(int64_t step, const std::string& first, const std::map<std::string, double>& behind) {
  std::vector<Future> recorded;
  for (const auto& [evaluator, value] : behind) disk_.Mark(Reporting(step, evaluator + "/score", value));
  next_report_ = [&] {
    for (const auto& [evaluator, value] : behind) {
      recorded.push_back(checkpointer_->ReportMetrics(step, evaluator, {{"score", value}}));
    }
  };
  const std::string first_metric = first + "/score";
  disk_.Mark(Reporting(step, first_metric, 1));
  Expect(checkpointer_->ReportMetrics(step, first, {{"score", 1}}).Wait(), "report");
  for (Future& result : recorded) Expect(result.Wait(), "report");
  // Not before the last one, whose writes go on beside this thread: the log would differ from run to run.
  disk_.Mark(Reported(step, first_metric, 1));
  for (const auto& [evaluator, value] : behind) disk_.Mark(Reported(step, evaluator + "/score", value));
  Tidy();
}

void Stage::Pin(int64_t step, bool pin) {
  disk_.Mark(Pinning(step, pin));
  Expect(pin ? checkpointer_->Pin(step, "a good one") : checkpointer_->Unpin(step), "pin");
  disk_.Mark(Pinned(step, pin));
  Tidy();
}

void Stage::Append(storage::StoreJournal::Compose compose) {
  const storage::StoreLayout layout(kStore);
  const auto store = storage::ReadStoreIdentity(files_, layout);
  Expect(store.status(), "read the store's id");
  if (!store.ok()) return;
  const auto journal = storage::StoreJournal::Open(files_, layout, *store, {.warn = [](std::string_view) {}});
  Expect(journal.status(), "open the journal beside the trainer");
  if (journal.ok()) Expect((*journal)->Change(compose), "append to the journal beside the trainer");
}

void Stage::ReportAsWorker(int64_t step, const std::string& evaluator, double value) {
  const std::string metric = evaluator + "/score";
  disk_.Mark(Reporting(step, metric, value));
  std::vector<storage::ReportOutcome> outcomes;
  Append([&](const storage::StepCatalog& catalog) -> absl::StatusOr<storage::Facts> {
    const auto record = catalog.Find(step);
    if (!record.ok() || !record->has_value()) return absl::NotFoundError("there is no such step");
    const storage::EvaluationFact report{
        .step = step,
        .attempt = (*record)->info.attempt,
        .evaluation = {.evaluator = evaluator, .worker = "worker", .metrics = {{"score", value}}}};
    return ReportFacts(catalog, {&report, 1}, outcomes);
  });
  for (const storage::ReportOutcome& outcome : outcomes) Expect(outcome.status, "report as a worker");
  disk_.Mark(Reported(step, metric, value));
}

void Stage::PinAsTool(int64_t step, bool pin) {
  disk_.Mark(Pinning(step, pin));
  Append([&](const storage::StepCatalog& catalog) {
    return pin ? PinFacts(catalog, step, "asked for", std::nullopt) : UnpinFacts(catalog, step, std::nullopt);
  });
  disk_.Mark(Pinned(step, pin));
}

void Stage::TagAsTool(int64_t step, const std::string& name, bool tag) {
  disk_.Mark(Tagging(step, name, tag));
  Append([&](const storage::StepCatalog& catalog) {
    return tag ? TagFacts(catalog, step, name, std::nullopt) : UntagFacts(catalog, step, name, std::nullopt);
  });
  disk_.Mark(Tagged(step, name, tag));
}

void Stage::Delete(int64_t step) {
  LetGoOf({step});
  Expect(checkpointer_->Delete(step, "not wanted"), "delete");
  ExpectGone({step});
}

void Stage::AskToDelete(int64_t step) {
  LetGoOf({step});
  const auto attempt = AttemptOf(step);
  if (!attempt) return;
  const storage::DeletionRequestFact request{.id = fmt::format("{:032x}", ++asked_),
                                             .step = step,
                                             .attempt = storage::ToHex(attempt->bytes),
                                             .reason = "asked for",
                                             .asker = "a test",
                                             .asked = absl::FromUnixSeconds(1'800'000'000 + asked_)};
  Append([&](const storage::StepCatalog& catalog) { return DeletionRequestFacts(catalog, request); });
}

void Stage::DiscardAfter(int64_t after, const std::vector<int64_t>& going) {
  disk_.Mark(Discarding(after));
  discards_after_ = after;
  discarded_last_ = going.back();
  const auto discarded = checkpointer_->DiscardAfter(after);
  discarded_last_ = -1;
  Expect(discarded.status(), "discard");
  if (!discarded.ok()) return;
  EXPECT_EQ(*discarded, going);
  ExpectGone(going);
}

void Stage::PruneAfter(int64_t after, const std::vector<int64_t>& going) {
  const auto ignore = [](std::string_view) {};
  const auto store =
      storage::Store::Open(files_, {.directory = kStore,
                                    .warn = ignore,
                                    .read = {.codec_threads = 1, .io = storage::IoQueueKind::kThreads, .io_depth = 1}});
  Expect(store.status(), "open");
  if (!store.ok()) return;
  storage::Retention retention(
      **store, {}, ignore,
      storage::LeaseObserver(files_, storage::StoreLayout(kStore), storage::ThisMachine(), storage::MonotonicNow),
      /*changes_max=*/1);
  disk_.Mark(Discarding(after));
  storage::Retention::Discarded discarded;
  retention.DiscardAfter(after, "the run went back", /*claims=*/{}, &discarded);
  disk_.Mark(Discarded(after));
  Expect(discarded.error, "discard");
  EXPECT_EQ(discarded.deleted, going);
  do {
    Expect(retention.Apply({}).status(), "remove files");
  } while (retention.unfinished());
  for (const int64_t gone : going) {
    disk_.Mark(LetGo(gone));
    steps_.erase(gone);
  }
}

std::optional<storage::AttemptId> Stage::AttemptOf(int64_t step) {
  const auto steps = checkpointer_->Steps();
  Expect(steps.status(), "list the steps");
  if (!steps.ok()) return std::nullopt;
  for (const StepInfo& info : *steps) {
    const auto id = storage::FromHex(info.attempt);
    if (info.step == step && id) return storage::AttemptId{*id};
  }
  ADD_FAILURE() << "step " << step << " has no attempt";
  return std::nullopt;
}

void Stage::Lease(int64_t step) {
  const auto attempt = AttemptOf(step);
  if (!attempt) return;
  storage::LeaseObserver observer(files_, storage::StoreLayout(kStore), storage::ThisMachine(), storage::MonotonicNow);
  auto lease = observer.Acquire(
      {.step = step, .attempt = *attempt, .evaluator = "validation", .holder = "worker", .expiry = absl::Minutes(1)});
  Expect(lease.status(), "lease");
  if (lease.ok()) leases_[step] = *std::move(lease);
  Tidy();
}

void Stage::Tidy() {
  // The round that a save has asked for comes before this one, which makes files for the journal as well.
  Expect(checkpointer_->RetentionPlan().status(), "plan");
  Expect(checkpointer_->Tidy(), "tidy");
}

storage::EntryNumber Stage::LastEntry() {
  const auto highest = storage::JournalFiles(disk_, storage::StoreLayout(kStore).journal()).Highest();
  Expect(highest.status(), "look for the journal's last entry");
  return highest.value_or(0);
}

void Stage::FillJournal(storage::EntryNumber entries) {
  for (bool pin = true; LastEntry() < entries || !pin; pin = !pin) Pin(steps_.begin()->first, pin);
}

void Stage::Close() {
  Expect(checkpointer_->Close(), "close");
  checkpointer_.reset();
}

void Stage::Repair(const std::set<int64_t>& damaged) {
  storage::RepairOptions options{.directory = kStore,
                                 .read = {.codec_threads = 1, .io = storage::IoQueueKind::kThreads, .io_depth = 1}};
  // Steps are read as soon as the store is open.
  options.progress = [&, open = false](const storage::RepairProgress&) mutable {
    if (std::exchange(open, true)) return;
    Mark(std::string(kJournalIsSound));
    for (const int64_t step : damaged) Mark(Damaged(step));
  };
  const auto report = storage::RepairStore(files_, options);
  Expect(report.status(), "repair");
  if (!report.ok()) return;
  EXPECT_EQ(report->unread.size(), 0u);
  std::set<int64_t> found;
  for (const storage::LostStep& lost : report->lost) found.insert(lost.step);
  EXPECT_EQ(found, damaged);
}

}  // namespace tidemark::crash
