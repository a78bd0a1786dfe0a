#include "storage/store/first_format/folder_note.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/io/errno_status.h"
#include "storage/records/checked_json.h"
#include "storage/records/json_fields.h"
#include "storage/records/tag.h"

namespace tidemark::storage {
namespace {

// An escaped byte takes up to 6; the tags, which need no escapes, and the check have room in what is left.
constexpr size_t kFileBytesMax = 8 * kFolderNoteBytesMax;
static_assert(kTagsPerStepMax * (kTagBytesMax + 3) < kFolderNoteBytesMax);

// What is too long is cut where a character of UTF-8 begins.
std::string Cut(const std::string& text) {
  size_t end = std::min(text.size(), kFolderNoteBytesMax);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

std::string NotePath(const StoreLayout& layout, const StepFolder& folder, std::string_view name) {
  return fmt::format("{}/{}", layout.attempt(folder.step, folder.attempt), name);
}

}  // namespace

FolderNote DecodeFolderNote(std::string_view bytes) {
  FolderNote note;
  // Notes without tags have no check, nor has what is written by hand or by libraries of before there was one.
  if (HasCheck(bytes)) note.problem = CheckEnd("note", bytes, kFileBytesMax);
  if (!note.problem.ok()) return note;
  ScopedJson scoped(ParseJson(bytes, nullptr, /*allow_exceptions=*/false));
  const Json& json = *scoped;
  // Damage to the name of the check hides the check, but not that there were tags.
  if (json.is_discarded() && bytes.find("\"tags\"") != std::string_view::npos) {
    note.problem = absl::DataLossError(fmt::format("note of {} bytes: it has tags but is not JSON", bytes.size()));
  }
  if (!json.is_object()) return note;
  const auto text = json.find("note");
  if (text != json.end() && text->is_string()) note.text = Cut(text->get_ref<const std::string&>());
  const auto tags = json.find("tags");
  if (tags == json.end() || !tags->is_array()) return note;
  for (const Json& tag : *tags) {
    if (tag.is_string()) AddTag(note.tags, tag.get_ref<const std::string&>());
  }
  return note;
}

absl::StatusOr<std::optional<FolderNote>> ReadFolderNote(FileSystem& files, const std::string& path) {
  absl::StatusOr<FileType> type = files.TypeOf(path);
  if (absl::IsNotFound(type.status())) return std::nullopt;
  if (!type.ok()) return type.status();
  if (*type != FileType::kRegular) return FolderNote{};
  absl::StatusOr<std::string> bytes = ReadSmallFile(files, path, kFileBytesMax);
  if (bytes.ok()) return DecodeFolderNote(*bytes);
  if (absl::IsNotFound(bytes.status())) return std::nullopt;  // gone since
  // Larger than any such file; a process that may open no more files gets the same code.
  const bool too_large =
      absl::IsResourceExhausted(bytes.status()) && !ErrnoCodeOf(std::string(bytes.status().message()));
  if (too_large || absl::IsDataLoss(bytes.status())) return FolderNote{};
  return FolderNote{.text = "", .tags = {}, .problem = bytes.status()};
}

absl::Status JoinPinOfFolder(FileSystem& files, const StoreLayout& layout,
                             const std::function<void(std::string_view)>& warn, StepInfo& info) {
  const auto attempt = FromHex(info.attempt);
  if (!attempt) return absl::OkStatus();
  const std::string path = NotePath(layout, {info.step, AttemptId{*attempt}}, "pin.json");
  const absl::StatusOr<std::optional<FolderNote>> note = ReadFolderNote(files, path);
  if (note.ok() && !note->has_value()) return absl::OkStatus();
  const absl::Status problem = note.ok() ? (*note)->problem : note.status();
  if (!problem.ok() && !absl::IsDataLoss(problem) && !info.pinned) return problem;
  if (!problem.ok()) {
    warn(fmt::format("step {} is pinned by {}, which cannot be read: {}", info.step, path,
                     std::string(problem.message())));
  }
  if (!note.ok()) return absl::OkStatus();
  if (!info.pinned) info.pin_note = (*note)->text;
  info.pinned = true;
  size_t left_out = 0;
  for (const std::string& tag : (*note)->tags) {
    if (!AddTag(info.tags, tag) && !HasTag(info.tags, tag)) ++left_out;
  }
  if (left_out > 0) {
    warn(fmt::format("step {} loses {} of its tags, because it may have at most {}", info.step, left_out,
                     kTagsPerStepMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> ReadDeletionMark(FileSystem& files, const StoreLayout& layout,
                                                            const StepFolder& folder) {
  const absl::StatusOr<std::optional<FolderNote>> note =
      ReadFolderNote(files, NotePath(layout, folder, "deleted.json"));
  if (!note.ok()) return note.status();
  if (!note->has_value()) return std::nullopt;
  return (*note)->text;
}

}  // namespace tidemark::storage
