// What a public call costs grows with each count of what it works on as the count does: tests/fuzz/cost_growth.h has
// the measure. Every call is run over every count, also over those that it should not depend on. The LibTorch edge is
// left out; tests/fuzz/decoder_cost_test.cc has the decoders. tests/repository/registration_test.py finds public calls
// that are not here.
//
// What grows too much must do so from two numbers, the second half as large again as the first. A buffer that is
// doubled, a table that the database writes in the background, or a machine that is slow for a while, is met by one of
// them alone.
//
// Longer than 500 lines: one table of all calls, and the store that they are run on.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/lease.h"
#include "storage/store/store.h"
#include "tests/fuzz/cost_growth.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"
#include "tidemark/average.h"
#include "tidemark/best_file.h"
#include "tidemark/capture.h"
#include "tidemark/export.h"
#include "tidemark/health_monitor.h"
#include "tidemark/preemption_guard.h"
#include "tidemark/store_reader.h"
#include "tidemark/worker.h"
#ifdef TIDEMARK_WITH_TOOLS
#include "tools/checkpoint_inspect/cli/console.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#endif

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::Cost;
using storage::CostOf;
using storage::FailingFileSystem;
using storage::IsOk;
using storage::StatusIs;
using testing::_;

// What the cost of a call may depend on.
struct Counts {
  uint64_t entries = 4;
  uint64_t ties = 0;  // further names of the first entry
  uint64_t chunks = 1;
  uint64_t saves = 0;       // before the last one, each of another chunk
  uint64_t references = 0;  // those chunks, which the saves change in turn; 0: of all
  uint64_t steps = 8;       // before those
  uint64_t rows = 1;        // evaluation records of each step
  uint64_t reports = 1;     // that workers append
  uint64_t leases = 1;
  // They answer at about the same time, so their rows are recorded together. Not measured: evaluators that answer one
  // after the other, each of whose rows is recorded when it comes, in a change of the record of its own.
  uint64_t evaluators = 1;
};

// A tensor of many chunks that has many names, and many small tensors.
struct CountedState {
  static constexpr uint32_t kChunkBytes = 4096;
  static constexpr size_t kChunkValues = kChunkBytes / sizeof(uint64_t);

  explicit CountedState(const Counts& counts, std::string_view prefix = "model")
      : weight(std::max({uint64_t{1}, counts.chunks, counts.saves}) * kChunkBytes / sizeof(uint64_t)),
        layers(counts.entries),
        changing(counts.references > 0 ? counts.references : weight.size() / kChunkValues) {
    std::mt19937_64 random(20261124);
    for (uint64_t& value : weight) value = random();
    AddWeight(fmt::format("{}.weight", prefix));
    for (size_t i = 0; i < layers.size(); ++i) {
      state.AddTensor(fmt::format("{}.layer.{}", prefix, i), Dtype::kFloat32, {4}, layers[i].data());
    }
    for (uint64_t i = 0; i < counts.ties; ++i) AddWeight(fmt::format("{}.tied.{}", prefix, i));
  }

  void AddWeight(std::string name) {
    state.AddTensor(std::move(name), Dtype::kUint64, {static_cast<int64_t>(weight.size())}, weight.data());
  }

  // Another chunk at each call, in turn.
  void ChangeChunk() { weight[changes++ % changing * kChunkValues] += 1; }

  std::vector<uint64_t> weight;
  std::vector<std::array<float, 4>> layers;
  const size_t changing;  // chunks
  size_t changes = 0;
  State state;
};

// A store with so many of everything, its trainer, and a reader beside it.
class CountedRun {
 public:
  static constexpr int64_t kFirstSave = 1'000'000;

  explicit CountedRun(const Counts& counts) : counts_(counts), model(counts), other(counts, "other") {
    MakeSteps();
    Open();
    for (uint64_t i = 0; i < counts_.saves; ++i) Save();
    Save();
    latest = next_step - 1;
    Close();
    AddRows();
    AddLeases();
    Open();
    EXPECT_THAT(checkpointer->Tag(latest, "tagged"), IsOk());
    OpenReader();
    auto captured = Capture(model.state);
    EXPECT_THAT(captured, IsOk());
    snapshot = *std::move(captured);
  }

  void Open() {
    CheckpointerOptions options{.directory = directory.path()};
    options.tuning.chunk_bytes = CountedState::kChunkBytes;
    options.tuning.codec_threads = 1;
    options.tuning.io = IoBackend::kThreads;
    options.tuning.reuse_saves_max = 0;
    options.tuning.poll_interval = absl::Hours(24);  // when Tidy is called, and at no other time
    options.tuning.scrub_bytes_per_second_max = 0;   // its reads would count, on a machine that is slow
    if (has_rules) {
      options.retention.keep_best = {{.metric = "loss", .mode = BestMode::kLowest, .count = 2}};
      options.retention.keep = [this](const StepInfo&) { return !deletes_all; };
    }
    options.observer = NoWarnings();
    auto opened = CheckpointerOnFileSystem::Open(files, std::move(options));
    ASSERT_THAT(opened, IsOk());
    checkpointer = *std::move(opened);
    for (uint64_t i = 0; i < counts_.evaluators; ++i) {
      const EvaluatorOptions evaluator{.name = fmt::format("evaluator{:06}", i), .when_lagging = WhenLagging::kBlock};
      EXPECT_THAT(checkpointer->AddEvaluator(evaluator, [](const Snapshot&) { return Metrics{{"loss", 1}}; }), IsOk());
    }
  }

  // From now on retention has rules, and has noted why it keeps each step. A save sets off one pass of retention or
  // several, as time has it. So saves are measured without rules, and passes by Tidy.
  void UseRules() {
    if (has_rules) return;
    has_rules = true;
    Close();
    Open();
    EXPECT_THAT(checkpointer->Tidy(), IsOk());
  }

  void Close() {
    EXPECT_THAT(checkpointer->Close(), IsOk());
    checkpointer.reset();
  }

  void OpenReader() {
    auto opened = StoreReader::Open(directory.path());
    ASSERT_THAT(opened, IsOk());
    reader = *std::move(opened);
  }

  // With all that happens behind it.
  void Save() {
    model.ChangeChunk();
    const int64_t step = next_step++;
    EXPECT_THAT(checkpointer->Save(step, model.state, {.metrics = {{"loss", static_cast<double>(-step)}}}), IsOk());
    EXPECT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
    EXPECT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
    EXPECT_THAT(checkpointer->Tidy(), IsOk());
  }

  void Evaluate() {
    EXPECT_THAT(checkpointer->Evaluate(next_step++, model.state), IsOk());
    EXPECT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  }

  // Other ones each time.
  void DeliverReports() {
    const auto info = reader->FindStep(latest);
    ASSERT_THAT(info, IsOk());
    const auto journal = OtherProcess(directory.path()).Open();
    ASSERT_THAT(journal, IsOk());
    storage::EvaluationFact report{.step = latest, .attempt = info->attempt};
    report.evaluation.metrics = {{"loss", ++reported}};
    std::vector<storage::ReportOutcome> outcomes;
    for (uint64_t i = 0; i < counts_.reports; ++i) {
      report.evaluation.evaluator = fmt::format("worker{:06}", i);
      ASSERT_THAT((*journal)->Change([&](const storage::StepCatalog& catalog) {
        return storage::ReportFacts(catalog, {&report, 1}, outcomes);
      }),
                  IsOk());
    }
  }

  // Of the same entries as `model`.
  void MakeState() const { CountedState state(counts_); }

  absl::Status Follow(int64_t begin_step) {
    return FollowStore({.directory = directory.path(),
                        .evaluator = "follower",
                        .report = false,
                        .begin_step = begin_step,
                        .idle_timeout = absl::ZeroDuration(),
                        .stop_on_signal = false},
                       [](const Snapshot&) {
                         return Metrics{{"loss", 1}};
                       })
        .status();
  }

 private:
  // Each of one value.
  void MakeSteps() {
    std::string warnings;
    const auto store = storage::OpenSoundStore(directory.path(), &warnings, files);
    ASSERT_NE(store, nullptr);
    for (uint64_t i = 0; i < counts_.steps; ++i) {
      const storage::ShardIdentity identity = storage::CommitStep(*store, static_cast<int64_t>(i), 1, files);
      if (i == 0) leased = identity;
    }
  }

  void AddRows() {
    std::string warnings;
    const auto store = storage::OpenSoundStore(directory.path(), &warnings, files);
    ASSERT_NE(store, nullptr);
    const auto committed = store->catalog().Committed();
    ASSERT_THAT(committed, IsOk());
    for (const auto& info : *committed) {
      std::vector<storage::EvaluationFact> rows;
      for (uint64_t i = 0; i < counts_.rows; ++i) {
        rows.push_back({.step = info->step, .attempt = info->attempt});
        rows.back().evaluation = {.evaluator = fmt::format("row{:06}", i), .metrics = {{"loss", 1}, {"accuracy", 2}}};
      }
      ASSERT_THAT(store->RecordReports(rows), IsOk());
    }
  }

  // Of another machine, so that they live without locks.
  void AddLeases() {
    files.CreateDirectory(layout.leases()).IgnoreError();
    storage::LeaseNote note{
        .step = leased.step, .attempt = leased.attempt, .machine = "another", .expiry = absl::Hours(9)};
    for (uint64_t i = 0; i < counts_.leases; ++i) {
      note.evaluator = fmt::format("leaseholder{:06}", i);
      storage::PutFile(files, layout.leases() + "/" + storage::LeaseFileName(note.attempt, note.evaluator),
                       storage::EncodeLeaseNote(note));
    }
  }

  const Counts counts_;

 public:
  const storage::TestDirectory directory = storage::TestDirectory::InMemory();
  const storage::StoreLayout layout{directory.path()};
  FailingFileSystem files{storage::PosixFileSystem()};
  CountedState model;
  CountedState other;  // without a name of the saved one
  bool has_rules = false;
  std::atomic<bool> deletes_all = false;
  storage::ShardIdentity leased;
  int64_t next_step = kFirstSave;
  int64_t latest = 0;
  int64_t next_deleted = 1;
  double reported = 0;
  std::unique_ptr<AsyncCheckpointer> checkpointer;
  std::unique_ptr<StoreReader> reader;
  std::shared_ptr<const Snapshot> snapshot;
};

using Do = std::function<void(CountedRun&)>;

struct Call {
  std::string name;
  Do work;
  Do before = nullptr;
  int runs = 3;
};

std::vector<Call> TrainerCalls() {
  const auto restores = [](RestoreOptions options) {
    return
        [options](CountedRun& run) { EXPECT_THAT(run.checkpointer->RestoreLatest(run.model.state, options), IsOk()); };
  };
  const auto selects = [](StepSelector step) {
    return [step](CountedRun& run) { EXPECT_THAT(run.checkpointer->Restore(step, run.model.state), IsOk()); };
  };
  return {
      {"ShouldSave", [](CountedRun& run) { EXPECT_TRUE(run.checkpointer->ShouldSave(run.next_step)); }},
      {"ShouldSave of a committed step",
       [](CountedRun& run) { EXPECT_FALSE(run.checkpointer->ShouldSave(run.latest)); }},
      {"SetSaveInterval", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->SetSaveInterval(0), IsOk()); }},
      {"Prepare", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->Prepare(run.model.state), IsOk()); }},
      {"PrepareInBackground",
       [](CountedRun& run) { EXPECT_THAT(run.checkpointer->PrepareInBackground(run.model.state), IsOk()); }},
      {"Save", [](CountedRun& run) { run.Save(); }},
      {"Evaluate", [](CountedRun& run) { run.Evaluate(); }},
      {"WaitUntilStaged", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->WaitUntilStaged(), IsOk()); }},
      {"WaitUntilStaged of an entry",
       [](CountedRun& run) { EXPECT_THAT(run.checkpointer->WaitUntilStaged("model.layer.0"), IsOk()); }},
      {"WaitUntilCommitted", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->WaitUntilCommitted(), IsOk()); }},
      {"WaitUntilEvaluated", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->WaitUntilEvaluated(), IsOk()); }},
      {"Committed", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->Committed(run.latest).Wait(), IsOk()); }},
      {"CheckForErrors", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->CheckForErrors(), IsOk()); }},
      {"statistics", [](CountedRun& run) { EXPECT_EQ(run.checkpointer->statistics().in_flight, 0); }},
      {"LatestStep", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->LatestStep(), IsOk()); }},
      {"WaitUntilEvaluated until a time",
       [](CountedRun& run) { EXPECT_THAT(run.checkpointer->WaitUntilEvaluated(absl::InfiniteFuture()), IsOk()); }},
      {"BestStep", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->BestStep("loss"), IsOk()); }},
      {"Steps", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->Steps(), IsOk()); }},
      {"RestoreLatest", restores({})},
      {"RestoreLatest of healthy steps", restores({.healthy_only = true})},
      {"RestoreLatest of some entries", restores({.only = {"model.layer.*"}})},
      {"RestoreLatest under other names",
       restores({.renames = {{"model.layer", "model.other"}}, .allow_missing = true, .allow_unexpected = true})},
      {"RestoreLatest of no step",
       [](CountedRun& run) {
         const RestoreOptions none{.accept = [](const StepInfo&) { return false; }};
         EXPECT_THAT(run.checkpointer->RestoreLatest(run.model.state, none), StatusIs(StatusCode::kNotFound, _));
       }},
      {"RestoreLatest into another state",
       [](CountedRun& run) {
         EXPECT_THAT(run.checkpointer->RestoreLatest(run.other.state), StatusIs(StatusCode::kInvalidArgument, _));
       }},
      {"Resume", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->Resume(run.model.state), IsOk()); }},
      {"Restore of a number",
       [](CountedRun& run) { EXPECT_THAT(run.checkpointer->Restore(run.latest, run.model.state), IsOk()); }},
      {"Restore of the best", selects(StepSelector::Best("loss"))},
      {"Restore of a tag", selects(StepSelector::Tag("tagged"))},
      {"ReportMetrics",
       [](CountedRun& run) {
         EXPECT_THAT(run.checkpointer->ReportMetrics(run.latest, "reporter", {{"loss", ++run.reported}}).Wait(),
                     IsOk());
       }},
      {"Pin and Unpin",
       [](CountedRun& run) {
         EXPECT_THAT(run.checkpointer->Pin(0, "note"), IsOk());
         EXPECT_THAT(run.checkpointer->Unpin(0), IsOk());
       }},
      {"Tag and Untag",
       [](CountedRun& run) {
         EXPECT_THAT(run.checkpointer->Tag(0, "name"), IsOk());
         EXPECT_THAT(run.checkpointer->Untag("name"), IsOk());
       }},
      {"Delete",
       [](CountedRun& run) {
         EXPECT_THAT(run.checkpointer->Delete(run.next_deleted++), IsOk());
         EXPECT_THAT(run.checkpointer->Tidy(), IsOk());
       }},
      {"DiscardAfter of a save",
       [](CountedRun& run) {
         EXPECT_THAT(run.checkpointer->DiscardAfter(run.latest), IsOk());
         EXPECT_THAT(run.checkpointer->Tidy(), IsOk());
       },
       [](CountedRun& run) { run.Save(); }},
      {"DiscardAfter", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->DiscardAfter(run.latest), IsOk()); }},
  };
}

std::vector<Call> ReaderCalls() {
  const auto finds = [](StepSelector step) {
    return [step](CountedRun& run) { EXPECT_THAT(run.reader->FindStep(step), IsOk()); };
  };
  return {
      {"StoreReader::Open", [](CountedRun& run) { run.OpenReader(); }},
      {"StoreReader::OpenUntrusted",
       [](CountedRun& run) { EXPECT_THAT(StoreReader::OpenUntrusted(run.directory.path()), IsOk()); }},
      {"Refresh", [](CountedRun& run) { EXPECT_THAT(run.reader->Refresh(), IsOk()); }},
      {"Refresh after a save", [](CountedRun& run) { EXPECT_THAT(run.reader->Refresh(), IsOk()); },
       [](CountedRun& run) { run.Save(); }},
      {"Refresh with reports", [](CountedRun& run) { EXPECT_THAT(run.reader->Refresh(), IsOk()); },
       [](CountedRun& run) { run.DeliverReports(); }},
      {"LatestStep", [](CountedRun& run) { EXPECT_THAT(run.reader->LatestStep(), IsOk()); }},
      {"LatestHealthyStep", [](CountedRun& run) { EXPECT_THAT(run.reader->LatestHealthyStep(), IsOk()); }},
      {"BestStep", [](CountedRun& run) { EXPECT_THAT(run.reader->BestStep("loss"), IsOk()); }},
      {"BestModeOf", [](CountedRun& run) { EXPECT_TRUE(run.reader->BestModeOf("loss")); }},
      {"FindStep of a number", [](CountedRun& run) { EXPECT_THAT(run.reader->FindStep(run.latest), IsOk()); }},
      {"FindStep of a tag", finds(StepSelector::Tag("tagged"))},
      {"FindStep of the best", finds(StepSelector::Best("loss"))},
      {"StoreReader::Restore",
       [](CountedRun& run) { EXPECT_THAT(run.reader->Restore(run.latest, run.model.state), IsOk()); }},
      {"StoreReader::RestoreLatest",
       [](CountedRun& run) { EXPECT_THAT(run.reader->RestoreLatest(run.model.state), IsOk()); }},
      {"Load", [](CountedRun& run) { EXPECT_THAT(run.reader->Load(run.latest), IsOk()); }},
      {"Load of some entries",
       [](CountedRun& run) { EXPECT_THAT(run.reader->Load(run.latest, {"model.layer.*"}), IsOk()); }},
      {"References", [](CountedRun& run) { EXPECT_THAT(run.reader->References(run.latest), IsOk()); }},
      {"Phases", [](CountedRun& run) { EXPECT_THAT(run.reader->Phases(run.latest), IsOk()); }},
      {"Contents", [](CountedRun& run) { EXPECT_THAT(run.reader->Contents(run.latest), IsOk()); }},
      {"OpenStep and Read",
       [](CountedRun& run) {
         const auto step = run.reader->OpenStep(run.latest);
         ASSERT_THAT(step, IsOk());
         std::vector<std::byte> bytes(run.model.weight.size() * sizeof(uint64_t));
         const StepReader::Window window{.entry = 0, .offset = 0, .destination = bytes};
         EXPECT_THAT((*step)->Read({&window, 1}), IsOk());
       }},
      {"OpenSelected", [](CountedRun& run) { EXPECT_THAT(run.reader->OpenSelected(run.latest), IsOk()); }},
      {"ReadEntry", [](CountedRun& run) { EXPECT_THAT(run.reader->ReadEntry(run.latest, "model.weight"), IsOk()); }},
      {"ReadEntry of a part",
       [](CountedRun& run) { EXPECT_THAT(run.reader->ReadEntry(run.latest, "model.weight", 8, 8), IsOk()); }},
      {"Verify", [](CountedRun& run) { EXPECT_THAT(run.reader->Verify(run.latest), IsOk()); }},
      {"Verify of a sample",
       [](CountedRun& run) { EXPECT_THAT(run.reader->Verify(run.latest, VerifyOptions{.share = 0.5}), IsOk()); }},
  };
}

std::vector<Call> OtherCalls() {
  return {
      {"Capture", [](CountedRun& run) { EXPECT_THAT(Capture(run.model.state), IsOk()); }},
      {"RestoreFrom", [](CountedRun& run) { EXPECT_THAT(RestoreFrom(*run.snapshot, run.model.state), IsOk()); }},
      {"MakeAverage",
       [](CountedRun& run) {
         const auto average = MakeAverage({.entries = {"*"}});
         ASSERT_THAT(average, IsOk());
         EXPECT_THAT((*average)->Update(*run.snapshot), IsOk());
       }},
      {"HealthMonitor",
       [](CountedRun& run) {
         const auto monitor = HealthMonitor::Create({.per_entry = {"*"}});
         ASSERT_THAT(monitor, IsOk());
         EXPECT_THAT((*monitor)->function()(*run.snapshot), IsOk());
       }},
      {"Find in a snapshot",
       [](CountedRun& run) {
         for (const EntrySpec& entry : run.snapshot->entries()) EXPECT_TRUE(run.snapshot->Find(entry.name));
       }},
      {"AddTensor", [](CountedRun& run) { run.MakeState(); }},
      {"Choose",
       [](CountedRun& run) {
         for (const StepSelector& step : {StepSelector::Latest(), StepSelector::LatestHealthy(),
                                          StepSelector::Best("loss"), StepSelector::Tag("tagged")}) {
           EXPECT_THAT(step.WithMode(run.reader->recorded_best_modes())->Choose(run.reader->Steps()), IsOk());
         }
       }},
      {"ExportSafetensors of a snapshot",
       [](CountedRun& run) {
         EXPECT_THAT(ExportSafetensors(*run.snapshot, run.directory / "snapshot.safetensors", {.replace = true}),
                     IsOk());
       }},
      {"ExportSafetensors of a step",
       [](CountedRun& run) {
         EXPECT_THAT(ExportSafetensors(*run.reader, run.latest, run.directory / "step.safetensors", {.replace = true}),
                     IsOk());
       }},
      {"BestFile",
       [](CountedRun& run) {
         auto file = BestFile::Start({.store = run.directory.path(),
                                      .metric = "loss",
                                      .path = run.directory / "best.safetensors",
                                      .contents = {.replace = true},
                                      .poll_interval = absl::Hours(24),
                                      .observer = NoWarnings()});
         ASSERT_THAT(file, IsOk());
         EXPECT_THAT((*file)->Update(), IsOk());
       }},
      {"FollowStore", [](CountedRun& run) { EXPECT_THAT(run.Follow(run.latest), IsOk()); }},
      {"FollowStore of all steps", [](CountedRun& run) { EXPECT_THAT(run.Follow(0), IsOk()); }},
  };
}

#ifdef TIDEMARK_WITH_TOOLS
Call Inspect(void (*add)(inspect::CommandLine&), std::string words) {
  return {"checkpoint-inspect " + words, [=](CountedRun& run) {
            const std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere(std::fopen("/dev/null", "w"), std::fclose);
            inspect::Console console(nowhere.get(), nowhere.get());
            inspect::CommandLine line;
            add(line);
            std::vector<std::string> arguments = absl::StrSplit(words, ' ');
            if (arguments[0] == "report")
              arguments.insert(arguments.end(), {"--force", "--output", run.directory / "r.html"});
            std::vector<const char*> argv = {"checkpoint-inspect", "--store", run.directory.path().c_str()};
            for (const std::string& argument : arguments) argv.push_back(argument.c_str());
            EXPECT_EQ(line.RunUnconfined(console, static_cast<int>(argv.size()), argv.data()), inspect::ExitCode::kOk);
          }};
}

std::vector<Call> InspectCalls() {
  return {
      Inspect(inspect::AddLs, "ls --all"),
      Inspect(inspect::AddHistory, "history"),
      Inspect(inspect::AddHistory, "history --plot"),
      Inspect(inspect::AddShow, "show latest"),
      Inspect(inspect::AddStats, "stats"),
      Inspect(inspect::AddTensors, "tensors latest --stats"),
      Inspect(inspect::AddDiff, "diff latest latest"),
      Inspect(inspect::AddVerify, "verify latest"),
      Inspect(inspect::AddReport, "report"),
  };
}
#endif

// The last ones: what they leave is another store.
std::vector<Call> EndingCalls() {
  const auto save_and_close = [](CountedRun& run) {
    const auto guard = PreemptionGuard::Install({});
    ASSERT_THAT(guard, IsOk());
    const PreemptionReport report = (*guard)->SaveAndClose(*run.checkpointer, run.next_step++, run.model.state, {});
    EXPECT_THAT(report.save, IsOk());
    EXPECT_THAT(report.close, IsOk());
  };
  return {
      {"Close, Open and AddEvaluator",
       [](CountedRun& run) {
         run.Close();
         run.Open();
       }},
      {"SaveAndClose", save_and_close,
       [](CountedRun& run) {
         run.checkpointer.reset();
         run.Open();
       }},
      {"RetentionPlan", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->RetentionPlan(), IsOk()); },
       [](CountedRun& run) { run.UseRules(); }},
      {"Tidy", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->Tidy(), IsOk()); }},
      {"Tidy with reports", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->Tidy(), IsOk()); },
       [](CountedRun& run) { run.DeliverReports(); }},
      {"Tidy that deletes", [](CountedRun& run) { EXPECT_THAT(run.checkpointer->Tidy(), IsOk()); },
       [](CountedRun& run) { run.deletes_all = true; }, /*runs=*/1},
  };
}

std::vector<Call> AllCalls() {
  std::vector<Call> all;
  const auto add = [&all](std::vector<Call> calls) {
    all.insert(all.end(), std::make_move_iterator(calls.begin()), std::make_move_iterator(calls.end()));
  };
  add(TrainerCalls());
  add(ReaderCalls());
  add(OtherCalls());
#ifdef TIDEMARK_WITH_TOOLS
  add(InspectCalls());
#endif
  add(EndingCalls());
  return all;
}

struct Dimension {
  std::string_view name;
  uint64_t Counts::*count;
  uint64_t first;  // and its double, and the double of that
  // How many saves come before the last one, whatever the count is. Each refers to those before it, so n saves would
  // have n * n references.
  uint64_t saves = 0;
};

void PrintTo(const Dimension& dimension, std::ostream* out) { *out << dimension.name; }

std::vector<Cost> CostsWith(const Dimension& dimension, uint64_t count, const std::vector<Call>& calls) {
  Counts counts;
  counts.saves = dimension.saves;
  counts.*dimension.count = count;
  CountedRun run(counts);
  std::vector<Cost> costs;
  for (const Call& call : calls) {
    SCOPED_TRACE(call.name);
    const auto bound = [&run](const Do& function) {
      return function == nullptr ? std::function<void()>() : [&run, &function] { function(run); };
    };
    costs.push_back(
        CostOf({.work = bound(call.work), .before = bound(call.before), .files = &run.files, .runs = call.runs}));
  }
  return costs;
}

// Of each call, from `first` on; empty: it grows as it should.
std::vector<std::string> GrowthsFrom(const Dimension& dimension, uint64_t first, const std::vector<Call>& calls) {
  const std::vector<Cost> once = CostsWith(dimension, first, calls);
  const std::vector<Cost> twice = CostsWith(dimension, 2 * first, calls);
  const std::vector<Cost> four_times = CostsWith(dimension, 4 * first, calls);
  std::vector<std::string> growths(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    growths[i] = storage::Growth(once[i], twice[i], four_times[i]);
    // Of one run alone the time says little.
    if (calls[i].runs > 1) growths[i] += storage::TimeGrowth(once[i], four_times[i]);
  }
  return growths;
}

class CallCost : public testing::TestWithParam<Dimension> {};

// Of the measure itself; decoder_cost_test.cc has the like for memory and time.
TEST(CallCostMeasure, FindsCallsOfTheFileSystemThatAreAProduct) {
  FailingFileSystem files(storage::PosixFileSystem());
  const auto cost = [&files](int count) {
    const auto work = [&files, count] {
      for (int i = 0; i < count * count; ++i) files.TypeOf("/").status().IgnoreError();
    };
    return CostOf({.work = work, .files = &files, .runs = 1});
  };
  EXPECT_THAT(storage::Growth(cost(20), cost(40), cost(80)), testing::HasSubstr("calls of the file system"));
}

// Of LatestStep, where so many steps that were only evaluated come after the one that was saved.
Cost CostOfLatestStep(int64_t unsaved) {
  const auto directory = storage::TestDirectory::InMemory();
  {
    std::string warnings;
    const auto store = storage::OpenSoundStore(directory.path(), &warnings);
    if (store == nullptr) return {};
    storage::CommitStep(*store, 0, 1);
    for (int64_t step = 1; step <= unsaved; ++step) {
      EXPECT_THAT(store->RecordUnsaved({.step = step, .state = StepState::kUnsaved}), IsOk());
    }
  }
  auto checkpointer = AsyncCheckpointer::Open({.directory = directory.path(), .observer = NoWarnings()});
  EXPECT_THAT(checkpointer, IsOk());
  if (!checkpointer.ok()) return {};
  EXPECT_EQ((*checkpointer)->Steps()->size(), static_cast<size_t>(unsaved) + 1);
  return CostOf({.work = [&] { EXPECT_EQ((*checkpointer)->LatestStep()->step, 0); }});
}

TEST(LatestStepCost, DoesNotDependOnStepsThatWereOnlyEvaluated) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << "allocations are not counted under AddressSanitizer";
  EXPECT_LE(CostOfLatestStep(4000).allocated_bytes, 2 * CostOfLatestStep(100).allocated_bytes);
}

TEST_P(CallCost, GrowsAsTheCount) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << "allocations are not counted under AddressSanitizer";
  const Dimension& dimension = GetParam();
  const std::vector<Call> calls = AllCalls();
  const std::vector<std::string> growths = GrowthsFrom(dimension, dimension.first, calls);
  if (std::all_of(growths.begin(), growths.end(), [](const std::string& growth) { return growth.empty(); })) return;
  const std::vector<std::string> again = GrowthsFrom(dimension, dimension.first * 3 / 2, calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_TRUE(growths[i].empty() || again[i].empty()) << calls[i].name << " " << growths[i] << again[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, CallCost,
                         testing::Values(Dimension{"Entries", &Counts::entries, 1000},                    //
                                         Dimension{"Ties", &Counts::ties, 1000},                          //
                                         Dimension{"Chunks", &Counts::chunks, 500},                       //
                                         Dimension{"References", &Counts::references, 15, /*saves=*/90},  //
                                         Dimension{"Steps", &Counts::steps, 100},                         //
                                         Dimension{"Rows", &Counts::rows, 40},                            //
                                         Dimension{"Reports", &Counts::reports, 60},                      //
                                         Dimension{"Leases", &Counts::leases, 200},                       //
                                         Dimension{"Evaluators", &Counts::evaluators, 10}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tidemark
