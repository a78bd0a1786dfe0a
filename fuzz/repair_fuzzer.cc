// Repair of a directory of fuzzed files (store_image.h): a store with a journal and without an index, or one of the
// first format without a manifest, which is converted from its shards, notes, reports and requests, as an opening for a
// trainer does it. RocksDB's own files are not made for strangers, see docs/reliability.md. The plan and the repair
// agree, the repair leaves nothing for the next one to do, and whatever is committed after it opens and has every byte.
// Links lead to a folder of the fuzzer's own. The repair must not touch it.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "fuzz/store_image.h"
#include "fuzz/temporary_folder.h"
#include "storage/io/file_system.h"
#include "storage/store/repair/repair.h"
#include "storage/store/store.h"

namespace tidemark::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> StepsOf(const std::vector<storage::LostStep>& lost) {
  std::vector<int64_t> steps;
  for (const storage::LostStep& step : lost) steps.push_back(step.step);
  return steps;
}

// What a link of the store leads to, if not to nothing.
class Elsewhere {
 public:
  Elsewhere() {
    std::ofstream(file()) << kText;
    Require(ReadFile() == kText, "a file cannot be written");
  }

  // An input says where its links lead: it may be the folder, or a file in it.
  void LeadLinksHere(const std::string& directory) const {
    std::vector<fs::path> links;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
      if (entry.is_symlink()) links.push_back(entry.path());
    }
    for (const fs::path& link : links) {
      const bool to_folder = fs::read_symlink(link).native().size() % 2 == 0;
      fs::remove(link);
      fs::create_symlink(to_folder ? folder_.path() : file(), link);
    }
  }

  void RequireUntouched() const {
    const auto files = std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
    Require(files == 1 && ReadFile() == kText, "a repair follows a link out of the store");
  }

 private:
  static constexpr std::string_view kText = "not the store's";
  std::string file() const { return folder_.path() + "/file"; }
  std::string ReadFile() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const TemporaryFolder folder_;
};

storage::RepairOptions Options(const std::string& directory) {
  return {.directory = directory, .read = {.io = storage::IoQueueKind::kThreads}};
}

// Steps that the plan says can be committed on request.
std::set<int64_t> Adoptable(const std::string& directory) {
  std::set<int64_t> steps;
  const auto plan = storage::PlanRepair(storage::PosixFileSystem(), Options(directory));
  if (!plan.ok()) return steps;
  for (const storage::StoreChange& change : plan->changes) {
    if (change.adoptable && change.step) steps.insert(*change.step);
  }
  return steps;
}

void Try(const std::string& directory, const std::set<int64_t>& adopt) {
  storage::FileSystem& files = storage::PosixFileSystem();
  storage::RepairOptions options = Options(directory);
  options.adopt = adopt;
  const absl::StatusOr<storage::RepairReport> plan = storage::PlanRepair(files, options);
  const absl::StatusOr<storage::RepairReport> report = storage::RepairStore(files, options);
  Require(plan.ok() == report.ok(), "a repair is planned and refused, or refused and done");
  if (!report.ok()) return;
  Require(StepsOf(plan->lost) == StepsOf(report->lost) && plan->restores == report->restores &&
              plan->changes.size() == report->changes.size(),
          "a repair does something else than what was planned");
  const absl::StatusOr<storage::RepairReport> again = storage::RepairStore(files, options);
  Require(again.ok() && again->changes.empty(), "a repair leaves something for the next one to do");
  Require(StepsOf(again->lost) == StepsOf(report->lost) && again->restores == report->restores,
          "a repair finds something else than the one before");
  const auto opened = storage::Store::Open(files, {.directory = directory, .warn = [](std::string_view) {}});
  Require(opened.ok(), "a store that was repaired does not open");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  const tidemark::fuzz::AllocationBudget budget(size);
  const fuzz::TemporaryFolder folder;
  fuzz::MakeStore(fuzz::FuzzInput(data, size), folder.path());
  std::filesystem::remove_all(storage::StoreLayout(folder.path()).manifest());
  const fuzz::Elsewhere elsewhere;
  elsewhere.LeadLinksHere(folder.path());
  if (const auto adoptable = fuzz::Adoptable(folder.path()); !adoptable.empty()) {
    const fuzz::TemporaryFolder same;
    fuzz::MakeStore(fuzz::FuzzInput(data, size), same.path());
    std::filesystem::remove_all(storage::StoreLayout(same.path()).manifest());
    elsewhere.LeadLinksHere(same.path());
    fuzz::Try(same.path(), adoptable);
  }
  fuzz::Try(folder.path(), {});
  elsewhere.RequireUntouched();
  return 0;
}
