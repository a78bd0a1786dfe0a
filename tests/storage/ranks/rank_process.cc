// One rank of a job, as a process of its own, which saves one step after the other until it is killed. What it is told
// of each goes to its log: "committed 7", "aborted 7" or "unknown 7", and the reason.
//
//   rank_process STORE FOLDER RANK WORLD_SIZE FIRST_STEP
//
// Rank 0 opens the store and leaves what the others need in FOLDER/held. The logs are FOLDER/log-<rank>.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "tests/storage/ranks/ranked_job.h"

namespace tidemark::storage {
namespace {

class RankProcess {
 public:
  RankProcess(const std::string& store, std::string folder, uint32_t rank, uint32_t world_size)
      : layout_(store),
        folder_(std::move(folder)),
        options_{.rank = rank,
                 .world_size = world_size,
                 .vote_timeout = absl::Milliseconds(1500),
                 .outcome_margin = absl::Milliseconds(500),
                 .warn = [](std::string_view) {}} {}

  absl::Status Open() {
    FileSystem& files = PosixFileSystem();
    const std::string held = folder_ + "/held";
    if (options_.rank == 0) {
      auto store = Store::Open(files, {.directory = layout_.directory(), .warn = [](std::string_view) {}});
      if (!store.ok()) return store.status();
      store_ = *std::move(store);
      auto attempts = RankedAttempts::OpenCoordinator(files, *store_, options_);
      if (!attempts.ok()) return attempts.status();
      attempts_ = *std::move(attempts);
      return WriteFileDurably(files, held, EncodeHeldStore(store_->Held()));
    }
    absl::StatusOr<std::string> bytes = ReadSmallFile(files, held, 4096);
    while (absl::IsNotFound(bytes.status())) {
      absl::SleepFor(absl::Milliseconds(5));
      bytes = ReadSmallFile(files, held, 4096);
    }
    if (!bytes.ok()) return bytes.status();
    const absl::StatusOr<HeldStore> decoded = DecodeHeldStore(*bytes);
    if (!decoded.ok()) return decoded.status();
    auto attempts = RankedAttempts::OpenParticipant(files, layout_, *decoded, options_);
    if (!attempts.ok()) return attempts.status();
    attempts_ = *std::move(attempts);
    return absl::OkStatus();
  }

  void Save(int64_t step) {
    const absl::Status told = SaveShard(*attempts_, PosixFileSystem(), layout_, step, ValueOf(step, options_.rank));
    const char* what = told.ok() ? "committed" : absl::IsUnknown(told) ? "unknown" : "aborted";
    Log(fmt::format("{} {} {}\n", what, step, std::string(told.message())));
  }

  void Log(const std::string& line) {
    const int log = open(fmt::format("{}/log-{}", folder_, options_.rank).c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (log < 0 || write(log, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
    close(log);
  }

 private:
  const StoreLayout layout_;
  const std::string folder_;
  const RankedAttemptsOptions options_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<RankedAttempts> attempts_;
};

}  // namespace
}  // namespace tidemark::storage

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  tidemark::storage::RankProcess process(argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
  if (const absl::Status opened = process.Open(); !opened.ok()) {
    process.Log("failed 0 " + opened.ToString() + "\n");
    return 1;
  }
  for (int64_t step = std::atoll(argv[5]);; ++step) process.Save(step);
}
