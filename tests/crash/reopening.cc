#include "tests/crash/reopening.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/records/step_catalog.h"
#include "storage/store/lease.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_journal.h"
#include "storage/store/store_layout.h"
#include "tests/crash/small_trainer.h"
#include "tests/crash/stage.h"

namespace tidemark::crash {
namespace {

// Of what is saved after a crash; scenarios stay below.
constexpr int64_t kFirstContent = 1000;

absl::Status RestoreAt(AsyncCheckpointer& checkpointer, int64_t step, SmallTrainer& trainer,
                       std::optional<int64_t>& content) {
  trainer.Clear();
  const absl::Status status = checkpointer.Restore(step, trainer.state).status();
  if (status.ok()) content = trainer.ContentAt(step);
  return status;
}

// A process that finds a lease dead empties its note before it removes the file, and a crash may leave it like that. An
// empty lease may also be one whose holder has not written the note yet. So it ends after some seconds, which is longer
// than a test waits.
bool HasEmptyLease(storage::FileSystem& files, const storage::StoreLayout& layout, const storage::AttemptId& attempt) {
  const auto leases = files.ListDirectory(layout.leases());
  return leases.ok() && std::ranges::any_of(*leases, [&](const storage::DirectoryEntry& lease) {
           if (storage::AttemptOfLeaseFile(lease.name) != attempt) return false;
           const auto note = files.ReadNote(layout.leases() + "/" + lease.name, /*bytes_max=*/1);
           return note.ok() && note->empty();
         });
}

absl::StatusOr<Seen> Look(AsyncCheckpointer& checkpointer, const Oracle& oracle, SmallTrainer& trainer) {
  Seen seen;
  // First of all, for it is what a trainer does, and restoring a step by its number examines it anew.
  trainer.Clear();
  const auto report = checkpointer.RestoreLatest(trainer.state);
  seen.restored_latest = report.status();
  if (report.ok()) {
    seen.restored_step = report->step;
    seen.restored_content = trainer.ContentAt(report->step);
  }
  const auto latest = checkpointer.LatestStep();
  seen.found_latest = latest.status();
  if (latest.ok()) seen.latest = latest->step;
  auto steps = checkpointer.Steps();
  if (!steps.ok()) return steps.status();
  std::set<int64_t> unknown = oracle.steps();
  for (const StepInfo& info : *steps) {
    unknown.erase(info.step);
    SeenStep step{
        .step = info.step, .state = info.state, .metrics = info.metrics, .pinned = info.pinned, .tags = info.tags};
    step.restored = RestoreAt(checkpointer, info.step, trainer, step.content);
    seen.steps.push_back(std::move(step));
  }
  for (const int64_t number : unknown) {
    SeenStep step{.step = number, .state = StepState::kFailed};
    step.restored = RestoreAt(checkpointer, number, trainer, step.content);
    seen.steps.push_back(std::move(step));
  }
  return seen;
}

std::set<int64_t> StepsWithShards(storage::FileSystem& files) {
  const storage::StoreLayout layout(kStore);
  std::set<int64_t> steps;
  for (const std::string& directory : {layout.steps(), layout.quarantine()}) {
    const auto folders = files.ListDirectory(directory);
    if (!folders.ok()) continue;  // there may be none
    for (const storage::DirectoryEntry& folder : *folders) {
      const auto parsed = storage::ParseStepFolderName(folder.name);
      const std::string shard = directory + "/" + folder.name + "/" + storage::ShardFileName(0, 1);
      if (parsed && files.TypeOf(shard).ok()) steps.insert(parsed->step);
    }
  }
  return steps;
}

// What a list of steps says, but for why a step is kept.
std::string TextOf(const std::vector<StepInfo>& steps) {
  std::string text;
  for (const StepInfo& info : steps) {
    absl::StrAppend(&text, info.step, " ", info.attempt, " is ", std::string(StepStateName(info.state)));
    if (info.pinned) absl::StrAppend(&text, ", pinned '", info.pin_note, "'");
    for (const std::string& tag : info.tags) absl::StrAppend(&text, ", ", tag);
    for (const auto& [metric, value] : info.metrics) absl::StrAppend(&text, ", ", metric, " ", value);
    text += "\n";
  }
  return text;
}

// The same as a process sees it that does not hold the store. nullopt: there is no store yet, or no journal.
absl::StatusOr<std::optional<std::string>> ReadBeside(storage::FileSystem& files) {
  const storage::StoreLayout layout(kStore);
  const auto store = storage::ReadStoreIdentity(files, layout);
  if (!store.ok()) return std::nullopt;
  const auto journal = storage::StoreJournal::Open(files, layout, *store, {.warn = [](std::string_view) {}});
  if (absl::IsNotFound(journal.status())) return std::nullopt;
  if (!journal.ok()) return journal.status();
  std::vector<StepInfo> steps;
  absl::Status status = (*journal)->catalog().ForEach([&](const storage::StepRecord& record) {
    steps.push_back(record.info);
    return true;
  });
  if (!status.ok()) return status;
  return TextOf(steps);
}

class Run {
 public:
  Run(storage::SimulatedDisk& disk, storage::FileSystem& files, Oracle oracle, bool journal_is_sound)
      : disk_(disk), files_(files), oracle_(std::move(oracle)), journal_is_sound_(journal_is_sound) {}

  // Each returns whether there is any sense in going on.
  bool Open();
  bool LookAround();
  bool SaveNext();
  bool Close();

  Reopening& result() { return result_; }

 private:
  void Mark(const std::string& mark) {
    oracle_.Hear(mark);
    disk_.Mark(mark);
  }
  bool Fine(std::string_view what, const absl::Status& status) {
    if (!status.ok()) result_.violations.push_back(absl::StrCat(std::string(what), ": ", status.ToString()));
    return status.ok();
  }

  // That the journal is the one that the crash has left, and a reader has seen what the trainer sees now. A journal
  // that was made anew is looked at all the same, to see whether anything is lost.
  void CheckJournal(const absl::StatusOr<std::optional<std::string>>& read, size_t warnings_before);

  void CheckNothingIsLeft();

  storage::SimulatedDisk& disk_;
  storage::FileSystem& files_;
  Oracle oracle_;
  bool journal_is_sound_ = true;
  Reopening result_;
  SmallTrainer trainer_;
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

bool Run::Open() {
  const auto read = ReadBeside(files_);
  const size_t warnings_before = result_.warnings.size();
  auto opened = OpenOrderly(files_, SmallOptions(&result_.warnings));
  if (!Fine("opening", opened.status())) return false;
  checkpointer_ = *std::move(opened);
  Mark(std::string(kJournalIsSound));
  if (journal_is_sound_) CheckJournal(read, warnings_before);
  journal_is_sound_ = true;
  // Takes in what others have appended, and removes what is left of unfinished saves.
  if (!Fine("I5: tidying up", checkpointer_->Tidy())) return false;
  CheckNothingIsLeft();
  return true;
}

void Run::CheckJournal(const absl::StatusOr<std::optional<std::string>>& read, size_t warnings_before) {
  for (size_t i = warnings_before; i < result_.warnings.size(); ++i) {
    if (result_.warnings[i].find("the journal cannot be read and is made anew") == std::string::npos) continue;
    return result_.violations.push_back("a crash alone has broken the journal: " + result_.warnings[i]);
  }
  if (!Fine("reading beside the trainer", read.status())) return;
  const auto steps = checkpointer_->Steps();
  if (!Fine("listing the steps", steps.status())) return;
  const std::string text = TextOf(*steps);
  if (read->value_or("") == text) return;
  result_.violations.push_back(
      absl::StrCat("a reader saw\n", read->value_or("no journal"), "before the trainer, which sees\n", text));
}

// In steps/ there is nothing but the steps' attempts, deleted ones that others refer to, and those that seem to be
// read.
void Run::CheckNothingIsLeft() {
  const auto store = storage::ReadStoreIdentity(disk_, storage::StoreLayout(kStore));
  if (!Fine("reading store.json", store.status())) return;
  const storage::StoreLayout layout(kStore);
  const auto journal = storage::StoreJournal::Open(disk_, layout, *store, {.warn = [](std::string_view) {}});
  if (!Fine("reading beside the trainer", journal.status())) return;
  const storage::StepCatalog& catalog = (*journal)->catalog();
  const auto deletions = catalog.Deletions();
  const auto folders = disk_.ListDirectory(layout.steps());
  if (!Fine("listing the deletions", deletions.status()) || !Fine("listing steps/", folders.status())) return;
  for (const storage::DirectoryEntry& folder : *folders) {
    const auto parsed = storage::ParseStepFolderName(folder.name);
    const bool is_deleted = parsed && std::any_of(deletions->begin(), deletions->end(), [&](const auto& deletion) {
                              return deletion.attempt == parsed->attempt;
                            });
    if (is_deleted && catalog.IsReferenced(parsed->attempt).value_or(false)) continue;
    if (parsed) {
      const auto record = catalog.Find(parsed->step);
      if (!Fine("finding a step", record.status())) return;
      if (record->has_value() && (*record)->info.attempt == storage::ToHex(parsed->attempt.bytes)) continue;
    }
    if (parsed && HasEmptyLease(disk_, layout, parsed->attempt)) continue;
    result_.violations.push_back(absl::StrCat("leftover: ", folder.name, " is in steps/, and no step needs it"));
  }
}

bool Run::LookAround() {
  auto seen = Look(*checkpointer_, oracle_, trainer_);
  if (!Fine("listing the steps", seen.status())) return false;
  seen->with_shards = StepsWithShards(disk_);
  for (std::string& violation : oracle_.Violations(*seen)) result_.violations.push_back(std::move(violation));
  if (!result_.violations.empty()) return false;
  for (const std::string& mark : oracle_.MarksOf(*seen)) Mark(mark);
  return true;
}

bool Run::SaveNext() {
  const std::set<int64_t> steps = oracle_.steps();
  const int64_t step = steps.empty() ? 1 : *steps.rbegin() + 1;
  const int64_t content = kFirstContent + step;
  trainer_.SetTo(step, content);
  Mark(Saving(step, content));
  auto save = checkpointer_->Save(step, trainer_.state, {.metrics = {{"loss", LossOf(step, content)}}});
  if (!Fine("I5: the next save", save.ok() ? save->committed().Wait() : save.status())) return false;
  Mark(Saved(step, content));
  trainer_.Clear();
  const auto report = checkpointer_->RestoreLatest(trainer_.state);
  if (!Fine("I5: restoring the next save", report.status())) return false;
  if (report->step == step && trainer_.ContentAt(step) == content) return true;
  result_.violations.push_back(
      absl::StrCat("I5: step ", report->step, " was restored instead of the next save, ", step));
  return false;
}

bool Run::Close() { return Fine("closing", std::exchange(checkpointer_, nullptr)->Close()); }

}  // namespace

Reopening Reopen(storage::SimulatedDisk& disk, storage::FileSystem& files, Oracle oracle,
                 const ReopeningOptions& options) {
  Run run(disk, files, std::move(oracle), options.journal_is_sound);
  const bool sound = run.Open() && run.LookAround() && run.SaveNext() && run.Close();
  if (sound && options.again && run.Open() && run.LookAround()) run.Close();
  return std::move(run.result());
}

}  // namespace tidemark::crash
