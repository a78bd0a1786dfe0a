// What the ranks of a job read when it is started again, with as many of them and with others.

#include <cstdint>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/rows.h"
#include "fmt/format.h"
#include "snapshot/restore/restore.h"
#include "storage/io/file_system.h"
#include "storage/shard/write/shard_writer.h"
#include "storage/store/store.h"
#include "tests/snapshot/ranks/thread_gather.h"

namespace tidemark::bench {
namespace {

// What this process has read so far by system calls, from wherever. io_uring is not counted, so nothing here uses it.
absl::StatusOr<double> BytesRead() {
  std::ifstream counters("/proc/self/io");
  std::string name;
  double bytes = 0;
  if (counters >> name >> bytes && name == "rchar:") return bytes;
  return absl::InternalError("/proc/self/io has no rchar");
}

// Each rank has some columns of a matrix of fp32, and saves them, or restores them.
absl::Status OnColumns(const std::string& directory, int32_t ranks, int64_t rows, int64_t columns, bool restores) {
  ThreadGather gathering(ranks);
  const std::vector<absl::Status> results = OnEachRank(ranks, [&](int32_t rank) -> absl::Status {
    auto checkpointer = AsyncCheckpointer::Open(
        {.directory = directory,
         .ranks = {.rank = rank,
                   .world_size = ranks,
                   .all_gather = [&](const std::string& bytes) { return gathering.Gather(rank, bytes); }},
         .compression = Compression::kNone,
         .tuning = {.io = IoBackend::kThreads}});
    if (!checkpointer.ok()) return checkpointer.status();
    const int64_t first = columns * rank / ranks;
    const int64_t count = columns * (rank + 1) / ranks - first;
    std::vector<float> part(static_cast<size_t>(rows * count), static_cast<float>(rank));
    State state;
    state.AddBox("matrix", Dtype::kFloat32, {rows, columns}, {0, first}, {rows, count}, part.data());
    absl::Status done;
    if (restores) {
      done = (*checkpointer)->RestoreLatest(state).status();
    } else if (auto save = (*checkpointer)->Save(0, state); save.ok()) {
      done = save->committed().Wait();
    } else {
      done = save.status();
    }
    done.Update((*checkpointer)->Close());
    return done;
  });
  absl::Status all;
  for (const absl::Status& status : results) all.Update(status);
  return all;
}

constexpr int32_t kManyRanks = 10'000;
constexpr int32_t kRank = 5'000;
constexpr int64_t kSteps = 100;

// The journal of a job of 10,000 ranks that has saved 100 steps, and of each step the shard of one rank, which reads no
// other.
absl::StatusOr<storage::StepRecord> WriteStoreOfManyRanks(storage::Store& store, State& state) {
  storage::FileSystem& files = storage::PosixFileSystem();
  auto writer = storage::ShardWriter::Create(files, {.io = storage::IoQueueKind::kThreads});
  if (!writer.ok()) return writer.status();
  if (absl::Status status = state.Refresh(); !status.ok()) return status;
  storage::ShardContents contents;
  for (const State::Entry& entry : state.entries()) {
    contents.entries.push_back({.spec = entry.spec, .bytes = {entry.host, static_cast<size_t>(entry.bytes)}});
  }
  storage::StepRecord record;
  for (int64_t step = 0; step < kSteps; ++step) {
    absl::StatusOr<storage::ShardIdentity> identity = store.BeginAttempt(step);
    if (!identity.ok()) return identity.status();
    identity->rank = kRank;
    identity->world_size = kManyRanks;
    const auto shard = (*writer)->Write(
        store.layout().shard(step, identity->attempt, identity->rank, identity->world_size), *identity, contents);
    if (!shard.ok()) return shard.status();
    record = {};
    record.info.step = step;
    record.info.attempt = storage::ToHex(identity->attempt.bytes);
    record.info.sequence = identity->sequence;
    record.info.created = absl::FromUnixSeconds(1'750'000'000 + step);
    record.info.world_size = kManyRanks;
    record.info.stored_bytes = kManyRanks * shard->footer.file_bytes;
    record.info.metrics = {{"loss", 1.0}};
    for (uint32_t rank = 0; rank < kManyRanks; ++rank) {
      record.shards.Add(rank, shard->footer.file_bytes, shard->footer.index_digest);
    }
    if (absl::Status committed = store.CommitSynced(record); !committed.ok()) return committed;
  }
  return record;
}

}  // namespace

absl::StatusOr<Measurement> ReshardReadAmplification(Context& context) {
  const std::string directory = context.NewPath("store");
  constexpr int64_t kColumns = 3 * 4 * 512;
  const int64_t rows = static_cast<int64_t>(context.Bytes(0.25) / (kColumns * sizeof(float)));
  if (absl::Status saved = OnColumns(directory, 4, rows, kColumns, /*restores=*/false); !saved.ok()) return saved;
  return context.Compare(
      Unit::kBytes,
      [&]() -> absl::StatusOr<double> {
        const absl::StatusOr<double> before = BytesRead();
        if (!before.ok()) return before.status();
        if (absl::Status restored = OnColumns(directory, 3, rows, kColumns, /*restores=*/true); !restored.ok()) {
          return restored;
        }
        const absl::StatusOr<double> after = BytesRead();
        if (!after.ok()) return after.status();
        return *after - *before;
      },
      [&]() -> absl::StatusOr<double> { return static_cast<double>(rows * kColumns) * sizeof(float); });
}

absl::StatusOr<Measurement> RestartReads10k(Context& context) {
  storage::FileSystem& files = storage::PosixFileSystem();
  const auto warn = [](std::string_view line) { fmt::print(stderr, "{}\n", line); };
  auto store = storage::Store::Open(files, {.directory = context.NewPath("store"), .warn = warn});
  if (!store.ok()) return store.status();
  std::deque<std::vector<float>> parts;
  State state;
  for (int i = 0; i < 1000; ++i) {
    state.AddBox(fmt::format("layers.{}.weight", i), Dtype::kFloat32, {kManyRanks, 64}, {kRank, 0}, {1, 64},
                 parts.emplace_back(64, 1.0f).data());
  }
  const absl::StatusOr<storage::StepRecord> record = WriteStoreOfManyRanks(**store, state);
  if (!record.ok()) return record.status();
  const auto own_shard = static_cast<double>(record->info.stored_bytes) / kManyRanks;
  const RankOptions ranks = {.rank = kRank, .world_size = kManyRanks};
  return context.Compare(
      Unit::kBytes,
      [&]() -> absl::StatusOr<double> {
        const absl::StatusOr<double> before = BytesRead();
        if (!before.ok()) return before.status();
        const storage::StoreLayout& layout = (*store)->layout();
        const auto joined =
            storage::Store::Join(files, {.directory = layout.directory(), .warn = warn}, (*store)->Held());
        if (!joined.ok()) return joined.status();
        const storage::ShardReadOptions read = {.io = storage::IoQueueKind::kThreads};
        const RestoreResult restored = RestoreAttempt({files, layout, (*joined)->id(), read, {}, &ranks}, *record,
                                                      state, {.allow_unexpected = true});
        if (!restored.status.ok()) return restored.status;
        const absl::StatusOr<double> after = BytesRead();
        if (!after.ok()) return after.status();
        return *after - *before - own_shard;
      },
      []() -> absl::StatusOr<double> { return 8e6; });
}

}  // namespace tidemark::bench
