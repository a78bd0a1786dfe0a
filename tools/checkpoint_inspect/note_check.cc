#include "tools/checkpoint_inspect/note_check.h"

#include <optional>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "storage/io/file_system.h"
#include "storage/manifest/inbox_files.h"
#include "storage/manifest/metric_report.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/report_files.h"
#include "storage/manifest/store_layout.h"

namespace tidemark::inspect {
namespace {

// As docs/format.md has it.
constexpr size_t kPinFileBytesMax = 8 * storage::kPinNoteBytesMax;

absl::Status CheckPin(storage::FileSystem& files, const storage::StoreLayout& layout, const storage::StepFolder& folder,
                      const std::string& path) {
  if (absl::Status status = storage::CheckPin(files, layout, folder); !status.ok()) return status;
  // That is ok of one that is not understood, too: for a pin it is enough to be there.
  const absl::StatusOr<std::string> bytes = storage::ReadSmallFile(files, path, kPinFileBytesMax);
  if (!bytes.ok()) return bytes.status();
  if (nlohmann::json::parse(*bytes, nullptr, /*allow_exceptions=*/false).is_object()) return absl::OkStatus();
  return absl::DataLossError("it is no JSON object");
}

void AddProblem(NoteProblem problem, const absl::Status& status, std::vector<NoteProblem>& problems) {
  if (status.ok() || absl::IsNotFound(status) || absl::IsUnimplemented(status)) return;
  problem.what = std::string(status.message());
  problems.push_back(std::move(problem));
}

}  // namespace

std::vector<NoteProblem> CheckStepNotes(const std::string& directory, const StepInfo& info) {
  std::vector<NoteProblem> problems;
  const auto attempt = storage::FromHex(info.attempt);
  if (!attempt) return problems;
  storage::FileSystem& files = storage::PosixFileSystem();
  const storage::StoreLayout layout(directory);
  const storage::StepFolder place{info.step, storage::AttemptId{*attempt}};
  const std::string folder = layout.attempt(place.step, place.attempt);
  const std::string pin = folder + "/pin.json";
  AddProblem({.step = info.step, .kind = "pin", .path = pin}, CheckPin(files, layout, place, pin), problems);
  const absl::StatusOr<std::vector<storage::DirectoryEntry>> entries = files.ListDirectory(folder);
  if (!entries.ok()) {
    AddProblem({.step = info.step, .kind = "report", .path = folder}, entries.status(), problems);
    return problems;
  }
  for (const storage::DirectoryEntry& entry : *entries) {
    if (!storage::IsMetricFileName(entry.name)) continue;
    const std::string path = folder + "/" + entry.name;
    AddProblem({.step = info.step, .kind = "report", .path = path}, storage::ReadReport(files, path).status(),
               problems);
  }
  return problems;
}

std::vector<NoteProblem> CheckInboxReports(const std::string& directory) {
  std::vector<NoteProblem> problems;
  storage::FileSystem& files = storage::PosixFileSystem();
  const storage::StoreLayout layout(directory);
  const absl::StatusOr<std::vector<storage::DirectoryEntry>> entries = storage::ListInbox(files, layout);
  // Without it nobody has reported anything.
  if (!entries.ok()) return problems;
  for (const storage::DirectoryEntry& entry : *entries) {
    const std::optional<storage::InboxName> name = storage::ParseInboxFileName(entry.name);
    if (!name) continue;
    const std::string path = storage::InboxPath(layout, entry.name);
    AddProblem({.step = name->folder.step, .kind = "report in the inbox", .path = path},
               storage::ReadReport(files, path).status(), problems);
  }
  return problems;
}

}  // namespace tidemark::inspect
