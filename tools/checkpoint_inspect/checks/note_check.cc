#include "tools/checkpoint_inspect/checks/note_check.h"

#include <optional>

#include "absl/status/status.h"
#include "storage/io/file_system.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/inbox_files.h"
#include "storage/manifest/pin.h"
#include "storage/manifest/report_files.h"
#include "storage/manifest/store_identity.h"
#include "storage/manifest/store_layout.h"
#include "storage/records/json_fields.h"
#include "storage/records/metric_report.h"
#include "tools/checkpoint_inspect/commands/steps.h"

namespace tidemark::inspect {
namespace {

// As docs/format.md has it.
constexpr size_t kNoteFileBytesMax = 8 * storage::kFolderNoteBytesMax;

// For whoever looks only whether it is there any bytes will do.
absl::Status CheckIsObject(storage::FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::string> bytes = storage::ReadSmallFile(files, path, kNoteFileBytesMax);
  if (!bytes.ok()) return bytes.status();
  if (storage::ParseJson(*bytes, nullptr, /*allow_exceptions=*/false).is_object()) return absl::OkStatus();
  return absl::DataLossError("it is not a JSON object");
}

absl::Status CheckPin(storage::FileSystem& files, const storage::StoreLayout& layout, const storage::StepFolder& folder,
                      const std::string& path) {
  if (absl::Status status = storage::CheckPin(files, layout, folder); !status.ok()) return status;
  // That is ok of one that is not understood, too: for a pin it is enough to be there.
  return CheckIsObject(files, path);
}

void AddProblem(NoteProblem problem, const absl::Status& status, std::vector<NoteProblem>& problems) {
  if (status.ok() || absl::IsNotFound(status) || absl::IsUnimplemented(status)) return;
  problem.what = std::string(status.message());
  problems.push_back(std::move(problem));
}

std::string PinPath(const std::string& folder) { return folder + "/pin.json"; }

// The folder of a step that is on disk and pinned, and has no pin.json; nullopt: it has one, or needs none, or cannot
// be looked at.
std::optional<std::string> FolderWithoutItsPin(const storage::StoreLayout& layout, const StepInfo& info) {
  const auto attempt = storage::FromHex(info.attempt);
  if (!info.pinned || !IsOnDisk(info) || !attempt) return std::nullopt;
  storage::FileSystem& files = storage::PosixFileSystem();
  const std::string folder = layout.attempt(info.step, storage::AttemptId{*attempt});
  // In this order: of a folder that is removed meanwhile the pin was there.
  const bool missing = absl::IsNotFound(files.TypeOf(PinPath(folder)).status());
  return missing && files.TypeOf(folder).ok() ? std::make_optional(folder) : std::nullopt;
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
  const std::string pin = PinPath(folder);
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

std::vector<NoteProblem> CheckDeletionMarks(const std::string& directory) {
  std::vector<NoteProblem> problems;
  storage::FileSystem& files = storage::PosixFileSystem();
  const storage::StoreLayout layout(directory);
  std::vector<std::string> strangers;
  const absl::StatusOr<std::vector<storage::StepFolder>> folders = storage::ListAttempts(files, layout, &strangers);
  // Whoever looks for steps there says so.
  if (!folders.ok()) return problems;
  for (const storage::StepFolder& folder : *folders) {
    const std::string path = layout.attempt(folder.step, folder.attempt) + "/deleted.json";
    AddProblem({.step = folder.step, .kind = "deletion mark", .path = path}, CheckIsObject(files, path), problems);
  }
  return problems;
}

std::vector<NoteProblem> FindMissingPins(StoreReader& reader, const std::string& directory,
                                         const std::vector<StepInfo>& steps) {
  const storage::StoreLayout layout(directory);
  std::vector<StepInfo> without;
  for (const StepInfo& info : steps) {
    if (FolderWithoutItsPin(layout, info)) without.push_back(info);
  }
  std::vector<NoteProblem> problems;
  if (without.empty()) return problems;
  // Where the store cannot be read any more, what it said stands.
  RefreshStore(reader).IgnoreError();
  for (const StepInfo& info : without) {
    const absl::StatusOr<StepInfo> now = reader.FindStep(info.step);
    if (!now.ok() || now->attempt != info.attempt) continue;
    const std::optional<std::string> folder = FolderWithoutItsPin(layout, *now);
    if (!folder) continue;
    problems.push_back({.step = info.step,
                        .kind = "pin",
                        .path = PinPath(*folder),
                        .what = "the file is missing, but the step's record has the pin"});
  }
  return problems;
}

absl::Status CheckIdentity(const std::string& directory) {
  const absl::Status status =
      storage::ReadStoreIdentity(storage::PosixFileSystem(), storage::StoreLayout(directory)).status();
  return absl::IsDataLoss(status) ? status : absl::OkStatus();
}

}  // namespace tidemark::inspect
