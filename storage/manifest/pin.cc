#include "storage/manifest/pin.h"

#include <utility>

#include "fmt/format.h"
#include "storage/records/tag.h"

namespace tidemark::storage {
namespace {

std::string PinPath(const StoreLayout& layout, const StepFolder& folder) {
  return layout.attempt(folder.step, folder.attempt) + "/pin.json";
}

void AddTags(const std::vector<std::string>& tags, const std::function<void(std::string_view)>& warn, StepInfo& info) {
  size_t left_out = 0;
  for (const std::string& tag : tags) {
    if (!AddTag(info.tags, tag) && !HasTag(info.tags, tag)) ++left_out;
  }
  if (left_out == 0) return;
  warn(fmt::format("step {} loses {} of its tags, because it may have at most {}", info.step, left_out,
                   kTagsPerStepMax));
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

absl::Status CheckPin(FileSystem& files, const StoreLayout& layout, const StepFolder& folder) {
  absl::StatusOr<std::optional<FolderNote>> note = ReadFolderNote(files, PinPath(layout, folder));
  return note.ok() && note->has_value() ? (*note)->problem : note.status();
}

absl::StatusOr<bool> JoinPinOfFolder(FileSystem& files, const StoreLayout& layout,
                                     const std::function<void(std::string_view)>& warn, StepInfo& info,
                                     bool must_be_given_out) {
  const auto attempt = FromHex(info.attempt);
  if (!attempt) return false;
  const std::string path = PinPath(layout, {info.step, AttemptId{*attempt}});
  absl::StatusOr<std::optional<FolderNote>> note = ReadFolderNote(files, path);
  if (!note.ok() && (!info.pinned || must_be_given_out)) return note.status();
  if (note.ok() && !note->has_value()) return false;
  const absl::Status problem = note.ok() ? (*note)->problem : note.status();
  // Of wrong bytes another look makes nothing better: who writes the file anew mends it.
  if (must_be_given_out && !problem.ok() && !absl::IsDataLoss(problem)) return problem;
  if (!problem.ok()) {
    warn(fmt::format("step {} is pinned by {}, which cannot be read: {}", info.step, path,
                     std::string(problem.message())));
  }
  if (!note.ok()) return false;
  const bool was_pinned = info.pinned;
  const size_t tags_before = info.tags.size();
  if (!was_pinned) info.pin_note = (*note)->text;
  info.pinned = true;
  AddTags((*note)->tags, warn, info);
  return !was_pinned || info.tags.size() != tags_before;
}

bool JoinPin(const StepInfo& replaced, const std::function<void(std::string_view)>& warn, StepInfo& info) {
  if (!replaced.pinned) return false;
  const bool was_pinned = info.pinned;
  if (!was_pinned) info.pin_note = replaced.pin_note;
  info.pinned = true;
  const std::vector<std::string> own = std::exchange(info.tags, replaced.tags);
  AddTags(own, warn, info);
  return !was_pinned || info.tags != own;
}

absl::Status InheritPin(FileSystem& files, const StoreLayout& layout, const StepInfo& replaced,
                        const std::function<void(std::string_view)>& warn, StepInfo& info) {
  const auto attempt = FromHex(info.attempt);
  const std::vector<std::string> known = info.tags;
  if (!JoinPin(replaced, warn, info) || !attempt || replaced.attempt == info.attempt) return absl::OkStatus();
  const StepFolder folder{info.step, AttemptId{*attempt}};
  const std::string path = PinPath(layout, folder);
  absl::StatusOr<std::optional<FolderNote>> own = ReadFolderNote(files, path);
  if (!own.ok()) return own.status();
  if (own->has_value() && !(*own)->problem.ok()) {
    warn(fmt::format("step {} inherits tags that a rebuild of the manifest would lose, because {} cannot be read: {}",
                     info.step, path, std::string((*own)->problem.message())));
    return absl::OkStatus();
  }
  // At an earlier look the disk may not have given it out.
  if (own->has_value()) {
    std::vector<std::string>& tags = (*own)->tags;
    std::erase_if(tags, [&](const std::string& tag) { return HasTag(known, tag); });
    AddTags(tags, warn, info);
  }
  return WritePin(files, layout, folder, info.pin_note, info.tags);
}

}  // namespace tidemark::storage
