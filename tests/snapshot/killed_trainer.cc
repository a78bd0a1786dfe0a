// A trainer that is killed: killed_trainer STORE CALL [EARLIER WEIGHTS]
//
// Saves step 1, and kills itself at that call of its file system in the save of step 2, counted from 1; or, where CALL
// is 0, when step 2 is committed. Ends with 0 if there was no such call, and with 1 if anything fails. EARLIER: so many
// deleted steps are recorded before. WEIGHTS: of its state.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/records/fact.h"
#include "storage/store/store.h"
#include "storage/store/store_journal.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

// Many in each entry, as nothing that saves does.
bool RecordEarlierSteps(const std::string& directory, int64_t steps) {
  constexpr int64_t kStepsPerEntry = 256;
  const auto ignore = [](std::string_view) {};
  storage::StoreId id;
  {
    auto store = storage::Store::Open(storage::PosixFileSystem(), {.directory = directory, .warn = ignore});
    if (!store.ok()) return false;
    id = (*store)->id();
  }
  auto journal = storage::StoreJournal::Open(storage::PosixFileSystem(), storage::StoreLayout(directory), id,
                                             {.holder = true, .warn = ignore});
  if (!journal.ok()) return false;
  for (int64_t first = 0; first < steps; first += kStepsPerEntry) {
    const absl::Status status = (*journal)->Change([&](const storage::StepCatalog&) {
      std::vector<storage::Fact> facts;
      for (int64_t i = first; i < std::min(first + kStepsPerEntry, steps); ++i) {
        storage::StepRecord record;
        record.info.step = 10 + i;
        record.info.sequence = static_cast<uint64_t>(i) + 1;
        record.info.attempt = storage::ToHex(storage::RandomBytes16());
        record.info.state = StepState::kDeleted;
        record.info.reason = "too old";
        record.info.metrics = {{"loss", 1.0 / static_cast<double>(i + 1)}, {"accuracy", 0.5}};
        facts.push_back(storage::StepFact{std::move(record)});
      }
      return absl::StatusOr<std::vector<storage::Fact>>(std::move(facts));
    });
    if (!status.ok()) return false;
  }
  return true;
}

bool Run(const std::string& store, int call_that_kills, int64_t earlier, int64_t weights) {
  if (earlier > 0 && !RecordEarlierSteps(store, earlier)) return false;
  storage::FailingFileSystem files(storage::PosixFileSystem());
  TestTrainer trainer(weights);
  auto checkpointer = CheckpointerOnFileSystem::Open(
      Machine(files),
      {.directory = store, .tuning = {.codec_threads = 1, .io = IoBackend::kThreads}, .observer = NoWarnings()});
  if (!checkpointer.ok()) return false;
  const auto save = [&](int64_t step) {
    trainer.SetTo(step);
    auto saved = (*checkpointer)->Save(step, trainer.state);
    return saved.ok() && saved->committed().Wait().ok();
  };
  if (!save(1)) return false;
  std::atomic<int> calls = 0;
  files.SetGate([&](const std::string&, const std::string&) {
    if (++calls == call_that_kills) std::raise(SIGKILL);
  });
  if (!save(2)) return false;
  if (call_that_kills == 0) std::raise(SIGKILL);
  files.SetGate(nullptr);
  return (*checkpointer)->Close().ok();
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) return 1;
  const int64_t earlier = argc == 5 ? std::atoll(argv[3]) : 0;
  const int64_t weights = argc == 5 ? std::atoll(argv[4]) : 1000;
  return tidemark::Run(argv[1], std::atoi(argv[2]), earlier, weights) ? 0 : 1;
}
