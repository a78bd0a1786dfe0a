// What the manifest costs: at a commit, and at opening a store with many steps.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "bench/bench_store.h"
#include "bench/rows.h"
#include "bench/work_folder.h"
#include "storage/io/file_system.h"
#include "storage/io/unique_fd.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/store.h"
#include "storage/manifest/store_layout.h"
#include "storage/records/manifest_records.h"
#include "storage/shard/ids.h"

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
  record.shards = {{.rank = 0, .file_bytes = uint64_t{1} << 30}};
  return record;
}

// Commits records of `count` made-up steps to the manifest of a closed store and makes their folders. In memory, where
// a sync costs nothing, if there is room for it: what is measured later is not how this came about.
absl::Status AddMadeUpSteps(Context& context, const storage::StoreLayout& layout, size_t count) {
  constexpr uint64_t kRecordBytesMax = 4096;  // with room for the database to move its files
  constexpr const char* kMemory = "/dev/shm";
  namespace fs = std::filesystem;
  std::error_code error;
  const bool in_memory = fs::space(kMemory, error).available > count * kRecordBytesMax && !error;
  absl::StatusOr<WorkFolder> folder = WorkFolder::Create(in_memory ? kMemory : context.folder());
  if (!folder.ok()) return folder.status();
  const std::string path = folder->path() + "/manifest";
  fs::rename(layout.manifest(), layout.manifest() + ".empty");
  fs::copy(layout.manifest() + ".empty", path, fs::copy_options::recursive);
  {
    auto manifest = storage::Manifest::Open(storage::PosixFileSystem(), path);
    if (!manifest.ok()) return manifest.status();
    for (size_t i = 0; i < count; ++i) {
      const auto step = static_cast<int64_t>(i);
      const storage::AttemptId attempt{storage::RandomBytes16()};
      absl::Status made = storage::PosixFileSystem().CreateDirectory(layout.attempt(step, attempt));
      if (!made.ok()) return made;
      if (auto committed = (*manifest)->Commit(MadeUpRecord(step, attempt)); !committed.ok()) return committed.status();
      if (i % 1000 == 0) context.progress().Say(fmt::format("{} of {} steps", i, count));
    }
  }
  fs::copy(path, layout.manifest(), fs::copy_options::recursive);
  fs::remove_all(layout.manifest() + ".empty");
  return SyncFileSystem(layout.directory());
}

// A store of `steps` steps. All but the last few are made up: a record, and a folder in which there is no shard, for an
// opening that finds records and folders in agreement looks into none. The last few are saved.
absl::StatusOr<std::string> MakeStore(Context& context, size_t steps) {
  constexpr size_t kSaved = 10;
  const std::string directory = context.NewPath("store");
  const size_t made_up = steps > kSaved ? steps - kSaved : 0;
  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> checkpointer = AsyncCheckpointer::Open({.directory = directory});
  if (!checkpointer.ok()) return checkpointer.status();
  if (made_up > 0) {
    if (absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return closed;
    absl::Status added = AddMadeUpSteps(context, storage::StoreLayout(directory), made_up);
    if (!added.ok()) return added;
    checkpointer = AsyncCheckpointer::Open({.directory = directory});
    if (!checkpointer.ok()) return checkpointer.status();
  }
  int64_t value = 0;
  tidemark::State state;
  state.AddValue("value", &value);
  for (size_t i = made_up; i < steps; ++i) {
    auto save = (*checkpointer)->Save(static_cast<int64_t>(i), state, {.metrics = {{"loss", 1.0}}});
    if (!save.ok()) return save.status();
    if (absl::Status committed = save->committed().Wait(); !committed.ok()) return committed;
  }
  if (absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return closed;
  return directory;
}

// Opens the store to write and finds the latest step and the one of the lowest loss; in seconds.
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

absl::StatusOr<double> TimedAppend(int file, const std::string& record) {
  const Stopwatch watch;
  if (write(file, record.data(), record.size()) != static_cast<ssize_t>(record.size()) || fdatasync(file) != 0) {
    return absl::ErrnoToStatus(errno, "append a record");
  }
  return watch.seconds();
}

}  // namespace

absl::StatusOr<Measurement> CommitVsFdatasync(Context& context) {
  constexpr int kTimes = 40;  // so many pairs for each: a commit is short, and its time varies
  const std::string manifest_path = context.NewPath("manifest");
  const std::string log_path = context.NewPath("log");
  auto manifest =
      storage::Manifest::Create(storage::PosixFileSystem(), manifest_path, storage::StoreId{storage::RandomBytes16()});
  if (!manifest.ok()) return manifest.status();
  const storage::UniqueFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return absl::ErrnoToStatus(errno, "create " + log_path);
  int64_t step = 0;
  const auto next_record = [&] { return MadeUpRecord(step++, storage::AttemptId{storage::RandomBytes16()}); };
  return context.Compare(
      Unit::kSeconds,
      [&]() -> absl::StatusOr<double> {
        const storage::StepRecord record = next_record();
        const Stopwatch watch;
        if (auto committed = (*manifest)->Commit(record); !committed.ok()) return committed.status();
        return watch.seconds();
      },
      [&] { return TimedAppend(log.get(), storage::EncodeStepRecord(next_record())); }, kTimes);
}

absl::StatusOr<Measurement> Open100kVs10(Context& context) {
  absl::StatusOr<std::string> many = MakeStore(context, context.Count(100'000));
  if (!many.ok()) return many.status();
  absl::StatusOr<std::string> few = MakeStore(context, 10);
  if (!few.ok()) return few.status();
  return context.Compare(
      Unit::kSeconds, [&] { return TimedOpen(*many); }, [&] { return TimedOpen(*few); });
}

}  // namespace tidemark::bench
