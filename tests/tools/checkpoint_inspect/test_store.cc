#include "tests/tools/checkpoint_inspect/test_store.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "storage/journal/journal.h"
#include "storage/journal/journal_files.h"
#include "storage/records/manifest_records.h"
#include "storage/records/metric_report.h"
#include "storage/store/step_changes.h"
#include "storage/store/store.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_journal.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/observers.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

// Before main: a thread may change the directory while a test runs. CTest runs the tests in the build tree.
const std::string kParent = fs::current_path();

// Offsets and sizes that docs/format.md fixes: the header, and where its version is.
constexpr size_t kBlockBytes = 4096;
constexpr size_t kVersionOffset = 8;

void FlipByte(const std::string& path, size_t offset) {
  std::string contents = ReadWhole(path);
  ASSERT_LT(offset, contents.size());
  contents[offset] = static_cast<char>(contents[offset] ^ 0x10);
  WriteWhole(path, contents);
}

}  // namespace

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteWhole(const std::string& path, std::string_view contents) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  EXPECT_TRUE(file.flush()) << path;
}

TestState::TestState(int64_t elements) : weight_(elements), bias_(3, 1), blob_(2) {
  // Numbers that no codec makes much smaller, the same in every run.
  uint32_t random = 1;
  for (float& value : weight_) value = static_cast<float>(random = random * 1664525 + 1013904223) / 4e9F;
  AddTensor("model.weight", Dtype::kFloat32, {elements, 1}, weight_.data());
  AddTensor("model.bias", Dtype::kFloat32, {3}, bias_.data());
  AddValue("epoch", &epoch_);
  AddValue("rate", &rate_);
  AddValue("ended", &ended_);
  AddValue("text", &text_);
  AddValue("blob", &blob_);
}

absl::Status TestState::Refresh() {
  if (!derived_) {
    derived_ = true;
    Entry one = entries()[0];
    one.spec.name = "model.tied";
    Entry other = one;
    other.spec.name = "model.tied_too";
    other.alias_of = 0;
    SetDerivedEntries({one, other});
  }
  return State::Refresh();
}

TestStore::TestStore() {
  std::string name = kParent + "/inspect-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  directory_ = name;
}

TestStore::~TestStore() { fs::remove_all(directory_); }

std::unique_ptr<AsyncCheckpointer> TestStore::OpenCheckpointer(absl::Time now, bool reuse) const {
  CheckpointerOptions options{.directory = directory_};
  options.tuning.chunk_bytes = 4096;
  // Without reuse each step has bytes of its own, always the same ones, so that a test knows what it damages.
  options.compression = Compression::kSpace;
  options.reuse = reuse;
  options.observer = NoWarnings();
  auto checkpointer = CheckpointerOnFileSystem::OpenWithClock([now] { return now; }, std::move(options));
  EXPECT_TRUE(checkpointer.ok()) << checkpointer.status();
  return *std::move(checkpointer);
}

void TestStore::Save(const std::vector<int64_t>& steps, const SaveOptions& options, int64_t elements,
                     absl::Time now) const {
  SaveWith(*OpenCheckpointer(now), steps, options, elements);
}

void TestStore::SaveReusing(const std::vector<int64_t>& steps, const SaveOptions& options) const {
  SaveWith(*OpenCheckpointer(absl::Now(), /*reuse=*/true), steps, options, 5000);
}

void TestStore::SaveWith(AsyncCheckpointer& checkpointer, const std::vector<int64_t>& steps, const SaveOptions& options,
                         int64_t elements) {
  TestState state(elements);
  for (int64_t step : steps) {
    auto save = checkpointer.Save(step, state, options);
    ASSERT_TRUE(save.ok()) << save.status();
  }
  const absl::Status closed = checkpointer.Close();
  EXPECT_TRUE(closed.ok()) << closed;
}

void TestStore::SaveInVain(int64_t step) const {
  auto checkpointer = OpenCheckpointer();
  TestState state(4 << 20);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto save = checkpointer->Save(step, state);
  EXPECT_TRUE(save.ok()) << save.status();
  EXPECT_FALSE(checkpointer->WaitUntilCommitted().ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
}

std::unique_ptr<storage::Store> TestStore::OpenStore() const {
  auto store = storage::Store::Open(storage::PosixFileSystem(),
                                    {.directory = directory_, .warn = [](std::string_view) {}, .read = {}});
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

std::unique_ptr<storage::StoreJournal> TestStore::OpenJournal(bool holder) const {
  const storage::StoreLayout layout(directory_);
  const auto store = storage::ReadStoreIdentity(storage::PosixFileSystem(), layout);
  EXPECT_TRUE(store.ok()) << store.status();
  auto journal = storage::StoreJournal::Open(storage::PosixFileSystem(), layout, *store,
                                             {.holder = holder, .warn = [](std::string_view) {}});
  EXPECT_TRUE(journal.ok()) << journal.status();
  return *std::move(journal);
}

void TestStore::Deliver(int64_t step, const Evaluation& evaluation) const {
  const storage::EvaluationFact report{.step = step, .attempt = Info(step).attempt, .evaluation = evaluation};
  std::vector<storage::ReportOutcome> outcomes;
  const absl::Status delivered = OpenJournal(/*holder=*/false)->Change([&](const storage::StepCatalog& catalog) {
    return storage::ReportFacts(catalog, {&report, 1}, outcomes);
  });
  ASSERT_TRUE(delivered.ok()) << delivered;
  ASSERT_TRUE(outcomes.at(0).status.ok()) << outcomes[0].status;
}

StepInfo TestStore::Info(int64_t step) const {
  const auto reader = StoreReader::Open(directory_);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return {};
  const auto info = (*reader)->FindStep(step);
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? *info : StepInfo{};
}

void TestStore::Update(int64_t step, const std::function<void(StepInfo&)>& change) const {
  const absl::Status updated =
      OpenJournal(/*holder=*/true)->Change([&](const storage::StepCatalog& catalog) -> absl::StatusOr<storage::Facts> {
        auto record = catalog.Find(step);
        if (!record.ok()) return record.status();
        if (!record->has_value()) return absl::NotFoundError("there is no record");
        change((*record)->info);
        return storage::Facts{storage::StepFact{.record = **std::move(record)}};
      });
  ASSERT_TRUE(updated.ok()) << updated;
}

void TestStore::RecordBestModes(const std::map<std::string, BestMode, std::less<>>& modes) const {
  const auto recorded = OpenStore()->AddBestModes(modes);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
}

void TestStore::Delete(int64_t step, const std::string& reason) const {
  const auto store = OpenStore();
  const auto record = store->catalog().Find(step);
  ASSERT_TRUE(record.ok() && record->has_value());
  const auto noted =
      store->NoteSteps({{.step = step, .attempt = (*record)->info.attempt, .deleted = true, .reason = reason}});
  ASSERT_TRUE(noted.ok()) << noted.status();
  const absl::Status status = store->RemoveDeleted({}).status();
  ASSERT_TRUE(status.ok()) << status;
}

void TestStore::RecordUnsaved(int64_t step, const Evaluation& evaluation) const {
  StepInfo info{.step = step, .state = StepState::kUnsaved, .created = absl::Now()};
  storage::ApplyEvaluation(info, evaluation);
  const absl::Status recorded = OpenStore()->RecordUnsaved(info);
  ASSERT_TRUE(recorded.ok()) << recorded;
}

void TestStore::RecordWithoutFiles(int64_t count) const {
  constexpr int64_t kStepsOfEntry = 1000;
  const auto journal = OpenJournal(/*holder=*/true);
  for (int64_t first = 1; first <= count; first += kStepsOfEntry) {
    storage::Facts facts;
    for (int64_t step = first; step <= std::min(count, first + kStepsOfEntry - 1); ++step) {
      std::array<uint8_t, 16> attempt = {};
      std::memcpy(attempt.data(), &step, sizeof(step));
      storage::StepRecord record;
      record.info.step = step;
      record.info.attempt = storage::ToHex(attempt);
      record.info.sequence = static_cast<uint64_t>(step);
      record.info.created = absl::FromUnixSeconds(1'750'000'000 + step);
      record.info.metrics = {{"loss", 1.0 + 1.0 / static_cast<double>(step)}, {"learning_rate", 1e-3}};
      record.info.entry_count = 300;
      record.info.logical_bytes = record.info.stored_bytes = uint64_t{1} << 30;
      record.shards.Add(0, uint64_t{1} << 30, {});
      facts.push_back(storage::StepFact{.record = std::move(record)});
    }
    const absl::Status recorded =
        journal->Change([&](const storage::StepCatalog&) -> absl::StatusOr<storage::Facts> { return facts; });
    ASSERT_TRUE(recorded.ok()) << recorded;
  }
}

std::string TestStore::ShardPath(int64_t step) const {
  char prefix[32];
  std::snprintf(prefix, sizeof(prefix), "%010lld-", static_cast<long long>(step));
  for (const auto& folder : fs::directory_iterator(directory_ + "/steps")) {
    if (folder.path().filename().string().starts_with(prefix)) return folder.path() / "shard-00000-of-00001.tmk";
  }
  ADD_FAILURE() << "step " << step << " has no folder";
  return "";
}

void TestStore::DamageChunk(int64_t step) const {
  // The first chunk lies behind the header.
  FlipByte(ShardPath(step), kBlockBytes + 100);
}

void TestStore::DamageIndex(int64_t step) const {
  const std::string path = ShardPath(step);
  const size_t name = ReadWhole(path).rfind("model.bias");
  ASSERT_NE(name, std::string::npos);
  FlipByte(path, name);
}

void TestStore::MakeShardNewer(int64_t step) const {
  const std::string path = ShardPath(step);
  std::string contents = ReadWhole(path);
  ASSERT_EQ(contents[kVersionOffset], 1);
  contents[kVersionOffset] = 3;
  WriteWhole(path, contents);
}

void TestStore::MakeStoreNewer() const {
  const std::string path = directory_ + "/store.json";
  std::string text = ReadWhole(path);
  const std::string now = "\"format\":" + std::to_string(storage::kStoreFormat);
  const size_t format = text.find(now);
  ASSERT_NE(format, std::string::npos) << text;
  text.replace(format, now.size(), "\"format\":" + std::to_string(storage::kStoreFormat + 1));
  WriteWhole(path, text);
}

void TestStore::AppendFact(const std::string& bytes) const {
  const auto journal = storage::Journal::Open(storage::PosixFileSystem(), storage::StoreLayout(directory_).journal(),
                                              storage::JournalPlace());
  ASSERT_TRUE(journal.ok()) << journal.status();
  const absl::Status looked = (*journal)->Look([](const storage::KnownEntry&, bool) {});
  ASSERT_TRUE(looked.ok()) << looked;
  const storage::Appended appended =
      (*journal)->Append({.kind = storage::AppendDraft::Kind::kAnybody, .facts = {bytes}},
                         [](const storage::JournalView&) { return absl::OkStatus(); });
  ASSERT_TRUE(appended.ok()) << appended.status;
}

void TestStore::RemoveShard(int64_t step) const { ASSERT_TRUE(fs::remove(ShardPath(step))); }

void TestStore::RemoveStep(int64_t step) const {
  ASSERT_GT(fs::remove_all(fs::path(ShardPath(step)).parent_path()), 0);
}

std::string TestStore::EntryPath(uint64_t number) const {
  return storage::JournalFiles(storage::PosixFileSystem(), storage::StoreLayout(directory_).journal()).PathOf(number);
}

uint64_t TestStore::LastEntry() const {
  const auto highest =
      storage::JournalFiles(storage::PosixFileSystem(), storage::StoreLayout(directory_).journal()).Highest();
  EXPECT_TRUE(highest.ok()) << highest.status();
  return highest.value_or(0);
}

// Its magic may be another version's; the bytes behind it are checked.
void TestStore::DamageJournal() const { FlipByte(EntryPath(1), ReadWhole(EntryPath(1)).size() / 2); }

void TestStore::RemoveIndex() const { ASSERT_GT(fs::remove_all(storage::StoreLayout(directory_).index()), 0); }

void TestStore::Restart() const {
  TestState state(5000);
  OpenCheckpointer()->RestoreLatest(state).status().IgnoreError();
}

std::map<std::string, std::string> TestStore::Listing() const {
  std::map<std::string, std::string> listing;
  const auto add = [&](const std::string& path) {
    struct stat info;
    EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
    std::string line;
    for (int64_t value :
         {int64_t{info.st_mode}, int64_t{info.st_size}, static_cast<int64_t>(info.st_ino), int64_t{info.st_mtim.tv_sec},
          int64_t{info.st_mtim.tv_nsec}, int64_t{info.st_ctim.tv_sec}, int64_t{info.st_ctim.tv_nsec}}) {
      line += std::to_string(value) + " ";
    }
    listing[path] = line;
  };
  add(directory_);
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) add(entry.path());
  return listing;
}

}  // namespace tidemark::inspect
