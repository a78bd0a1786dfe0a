// What the journal and its index cost: at a commit, and at opening a store with many steps.

#include "bench/rows_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench_store.h"
#include "bench/process.h"
#include "bench/rows.h"
#include "bench/work_folder.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/io/unique_fd.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "storage/store/garbage.h"
#include "storage/store/step_changes.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_journal.h"
#include "storage/store/store_layout.h"

namespace tidemark::bench {
namespace {

// The record of a step as training writes it.
storage::StepRecord MadeUpRecord(int64_t step, const storage::AttemptId& attempt) {
  storage::StepRecord record;
  record.info.step = step;
  record.info.attempt = storage::ToHex(attempt.bytes);
  record.info.sequence = static_cast<uint64_t>(step) + 1;
  record.info.created = absl::FromUnixSeconds(1'750'000'000 + step);
  record.info.metrics = {{"loss", 1.0 + 1.0 / static_cast<double>(step + 1)}, {"learning_rate", 1e-3}};
  record.info.entry_count = 300;
  record.info.logical_bytes = uint64_t{1} << 30;
  record.info.stored_bytes = uint64_t{1} << 30;
  record.shards.Add(0, uint64_t{1} << 30, {});
  return record;
}

absl::Status SaveOne(AsyncCheckpointer& checkpointer, int64_t step) {
  int64_t value = 0;
  tidemark::State state;
  state.AddValue("value", &value);
  auto save = checkpointer.Save(step, state, {.metrics = {{"loss", 1.0}}});
  return save.ok() ? save->committed().Wait() : save.status();
}

// Commits made-up steps to a new store and makes their folders. Many in one entry, where each sync of a trainer's save
// would be one: what is measured later is not how this came about.
absl::Status AddMadeUpSteps(Context& context, const storage::StoreLayout& layout, size_t count) {
  constexpr size_t kTogether = 1000;
  const auto warn = [&](std::string_view line) { context.progress().Say(std::string(line)); };
  absl::StatusOr<storage::StoreId> id = storage::ReadStoreIdentity(storage::PosixFileSystem(), layout);
  if (!id.ok()) return id.status();
  auto journal = storage::StoreJournal::Open(storage::PosixFileSystem(), layout, *id, {.holder = true, .warn = warn});
  if (!journal.ok()) return journal.status();
  for (size_t first = 0; first < count; first += kTogether) {
    context.progress().Say(fmt::format("{} of {} steps", first, count));
    std::vector<storage::StepRecord> records;
    for (size_t i = first; i < std::min(first + kTogether, count); ++i) {
      const auto step = static_cast<int64_t>(i);
      const storage::AttemptId attempt = storage::MakeAttemptId((*journal)->epoch(), i + 1);
      absl::Status made = storage::PosixFileSystem().CreateDirectory(layout.attempt(step, attempt));
      if (!made.ok()) return made;
      records.push_back(MadeUpRecord(step, attempt));
    }
    absl::Status committed =
        (*journal)->Change([&](const storage::StepCatalog& catalog) -> absl::StatusOr<storage::Facts> {
          storage::Facts all;
          for (const storage::StepRecord& record : records) {
            absl::StatusOr<storage::Facts> facts = storage::CommitFacts(catalog, record, nullptr, warn);
            if (!facts.ok()) return facts;
            all.insert(all.end(), std::make_move_iterator(facts->begin()), std::make_move_iterator(facts->end()));
          }
          return all;
        });
    if (!committed.ok()) return committed;
  }
  return SyncFileSystem(layout.directory());
}

absl::StatusOr<double> TimedAppend(int file, const std::string& record) {
  const Stopwatch watch;
  if (write(file, record.data(), record.size()) != static_cast<ssize_t>(record.size()) || fdatasync(file) != 0) {
    return absl::ErrnoToStatus(errno, "append a record");
  }
  return watch.seconds();
}

}  // namespace

absl::StatusOr<std::string> MakeStore(Context& context, size_t steps) {
  constexpr size_t kSaved = 10;
  const std::string directory = context.NewPath("store");
  const size_t made_up = steps > kSaved ? steps - kSaved : 0;
  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> checkpointer = AsyncCheckpointer::Open({.directory = directory});
  if (!checkpointer.ok()) return checkpointer.status();
  if (made_up > 0) {
    if (absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return closed;
    checkpointer->reset();
    absl::Status added = AddMadeUpSteps(context, storage::StoreLayout(directory), made_up);
    if (!added.ok()) return added;
    checkpointer = AsyncCheckpointer::Open({.directory = directory});
    if (!checkpointer.ok()) return checkpointer.status();
  }
  for (size_t i = made_up; i < steps; ++i) {
    if (absl::Status saved = SaveOne(**checkpointer, static_cast<int64_t>(i)); !saved.ok()) return saved;
  }
  if (absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return closed;
  return directory;
}

absl::StatusOr<double> TimedOpen(const std::string& directory) {
  const Stopwatch watch;
  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> checkpointer = AsyncCheckpointer::Open({.directory = directory});
  if (!checkpointer.ok()) return checkpointer.status();
  if (absl::StatusOr<StepInfo> latest = (*checkpointer)->LatestStep(); !latest.ok()) return latest.status();
  absl::StatusOr<StepInfo> best = (*checkpointer)->BestStep("loss", tidemark::BestMode::kLowest);
  if (!best.ok()) return best.status();
  const double seconds = watch.seconds();
  if (absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return closed;
  return seconds;
}

absl::Status LeaveStoreOpen(const std::string& directory) {
  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> checkpointer =
      AsyncCheckpointer::Open({.directory = directory, .create = false});
  if (!checkpointer.ok()) return checkpointer.status();
  absl::StatusOr<StepInfo> latest = (*checkpointer)->LatestStep();
  if (!latest.ok()) return latest.status();
  if (absl::Status saved = SaveOne(**checkpointer, latest->step + 1); !saved.ok()) return saved;
  // As a kill would end it: nothing is closed.
  raise(SIGKILL);
  return absl::InternalError("it lives on");
}

absl::StatusOr<Measurement> CommitVsFdatasync(Context& context) {
  constexpr int kTimes = 40;  // so many pairs for each: a commit is short, and its time varies
  const storage::StoreLayout layout(context.NewPath("store"));
  const std::string log_path = context.NewPath("log");
  const auto warn = [&](std::string_view line) { context.progress().Say(std::string(line)); };
  if (absl::Status made = storage::PosixFileSystem().CreateDirectory(layout.directory()); !made.ok()) return made;
  auto journal = storage::StoreJournal::Open(
      storage::PosixFileSystem(), layout, storage::StoreId{storage::RandomBytes16()}, {.holder = true, .warn = warn});
  if (!journal.ok()) return journal.status();
  const storage::UniqueFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return absl::ErrnoToStatus(errno, "create " + log_path);
  int64_t step = 0;
  const auto next_record = [&] { return MadeUpRecord(step++, storage::AttemptId{storage::RandomBytes16()}); };
  return context.Compare(
      Unit::kSeconds,
      [&]() -> absl::StatusOr<double> {
        const storage::StepRecord record = next_record();
        const Stopwatch watch;
        absl::Status committed = (*journal)->Change(
            [&](const storage::StepCatalog& catalog) { return storage::CommitFacts(catalog, record, nullptr, warn); });
        const double seconds = watch.seconds();
        // Of the housekeeper's thread in a trainer.
        if (committed.ok()) committed = (*journal)->Maintain();
        if (!committed.ok()) return committed;
        return seconds;
      },
      [&]() -> absl::StatusOr<double> {
        const absl::StatusOr<std::string> fact = storage::EncodeFact(storage::StepFact{next_record()});
        return fact.ok() ? TimedAppend(log.get(), *fact) : fact.status();
      },
      kTimes);
}

absl::StatusOr<Measurement> Open100kVs10(Context& context) {
  absl::StatusOr<std::string> many = MakeStore(context, context.Count(100'000));
  if (!many.ok()) return many.status();
  absl::StatusOr<std::string> few = MakeStore(context, 10);
  if (!few.ok()) return few.status();
  return context.Compare(
      Unit::kSeconds, [&] { return TimedOpen(*many); }, [&] { return TimedOpen(*few); });
}

absl::StatusOr<Measurement> OpenAfterKill100kVs10(Context& context) {
  absl::StatusOr<std::string> many = MakeStore(context, context.Count(100'000));
  if (!many.ok()) return many.status();
  absl::StatusOr<std::string> few = MakeStore(context, 10);
  if (!few.ok()) return few.status();
  const auto timed = [](const std::string& directory) -> absl::StatusOr<double> {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    absl::StatusOr<ProcessOutput> output = RunProcess({program, kLeaveOpenOption, directory});
    if (!output.ok()) return output.status();
    if (output->exit_code != 128 + SIGKILL) {
      return absl::InternalError(fmt::format("the process that is to be killed: {}", output->err));
    }
    return TimedOpen(directory);
  };
  return context.Compare(
      Unit::kSeconds, [&] { return timed(*many); }, [&] { return timed(*few); });
}

}  // namespace tidemark::bench
