#include "storage/manifest/pin.h"

#include "fmt/format.h"
#include "storage/manifest/tag.h"

namespace tidemark::storage {
namespace {

std::string PinPath(const StoreLayout& layout, const StepFolder& folder) {
  return layout.attempt(folder.step, folder.attempt) + "/pin.json";
}

}  // namespace

absl::Status WritePin(FileSystem& files, const StoreLayout& layout, const StepFolder& folder, std::string_view note,
                      const std::vector<std::string>& tags) {
  return WriteFolderNote(files, PinPath(layout, folder), note, tags);
}

absl::Status RemovePin(FileSystem& files, const StoreLayout& layout, const StepFolder& folder) {
  absl::Status status = files.RemoveFile(PinPath(layout, folder));
  // Where it is gone already, the call that removed it may have failed at the sync.
  if (!status.ok() && !absl::IsNotFound(status)) return status;
  status = files.SyncDirectory(layout.attempt(folder.step, folder.attempt));
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::optional<std::string>> ReadPin(FileSystem& files, const StoreLayout& layout,
                                                   const StepFolder& folder) {
  absl::StatusOr<std::optional<FolderNote>> note = ReadFolderNote(files, PinPath(layout, folder));
  if (!note.ok()) return note.status();
  if (!note->has_value()) return std::nullopt;
  return (*note)->text;
}

absl::StatusOr<bool> TakePin(FileSystem& files, const StoreLayout& layout,
                             const std::function<void(std::string_view)>& warn, StepInfo& info) {
  const auto attempt = FromHex(info.attempt);
  if (!attempt) return false;
  const std::string path = PinPath(layout, {info.step, AttemptId{*attempt}});
  const auto warn_of = [&](const absl::Status& problem) {
    warn(fmt::format("step {} is pinned by {}, which cannot be read: {}", info.step, path,
                     std::string(problem.message())));
  };
  absl::StatusOr<std::optional<FolderNote>> note = ReadFolderNote(files, path);
  if (!note.ok() && (!info.pinned || !warn)) return note.status();
  if (!note.ok()) {
    warn_of(note.status());
    return false;
  }
  if (!note->has_value()) return false;
  if (const absl::Status& problem = (*note)->problem; !problem.ok()) {
    if (!warn) return problem;
    warn_of(problem);
  }
  return JoinPin({.pinned = true, .pin_note = (*note)->text, .tags = (*note)->tags}, info);
}

bool JoinPin(const StepInfo& from, StepInfo& info) {
  if (!from.pinned) return false;
  bool changed = !info.pinned;
  if (changed) info.pin_note = from.pin_note;
  info.pinned = true;
  for (const std::string& tag : from.tags) changed = AddTag(info.tags, tag) || changed;
  return changed;
}

absl::Status InheritPin(FileSystem& files, const StoreLayout& layout, const StepInfo& replaced, StepInfo& info) {
  const auto attempt = FromHex(info.attempt);
  if (!JoinPin(replaced, info) || !attempt || replaced.attempt == info.attempt) return absl::OkStatus();
  return WritePin(files, layout, {info.step, AttemptId{*attempt}}, info.pin_note, info.tags);
}

}  // namespace tidemark::storage
