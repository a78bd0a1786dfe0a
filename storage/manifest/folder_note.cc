#include "storage/manifest/folder_note.h"

#include "nlohmann/json.hpp"

namespace tidemark::storage {
namespace {

using Json = nlohmann::json;

constexpr int kFolderNoteVersion = 1;
constexpr size_t kFileBytesMax = 8 * kFolderNoteBytesMax;  // an escaped byte takes up to 6

std::string TextOf(const std::string& bytes) {
  const Json json = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "";
  const auto note = json.find("note");
  return note != json.end() && note->is_string() ? note->get<std::string>() : "";
}

}  // namespace

absl::Status WriteFolderNote(FileSystem& files, const std::string& path, std::string_view note) {
  const Json json = {{"version", kFolderNoteVersion}, {"note", note}};
  return WriteFileDurably(files, path, json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

absl::StatusOr<std::optional<FolderNote>> ReadFolderNote(FileSystem& files, const std::string& path) {
  absl::StatusOr<FileType> type = files.TypeOf(path);
  if (absl::IsNotFound(type.status())) return std::nullopt;
  if (!type.ok()) return type.status();
  if (*type != FileType::kRegular) return FolderNote{};
  absl::StatusOr<std::string> bytes = ReadSmallFile(files, path, kFileBytesMax);
  if (bytes.ok()) return FolderNote{.text = TextOf(*bytes), .problem = absl::OkStatus()};
  if (absl::IsNotFound(bytes.status())) return std::nullopt;  // gone since
  if (absl::IsResourceExhausted(bytes.status()) || absl::IsDataLoss(bytes.status())) return FolderNote{};
  return FolderNote{.text = "", .problem = bytes.status()};
}

}  // namespace tidemark::storage
