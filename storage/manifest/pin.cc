#include "storage/manifest/pin.h"

#include "nlohmann/json.hpp"

namespace tidemark::storage {
namespace {

using Json = nlohmann::json;

constexpr int kPinVersion = 1;
constexpr size_t kPinBytesMax = 8 * kPinNoteBytesMax;  // an escaped byte takes up to 6

std::string PinPath(const StoreLayout& layout, const StepFolder& folder) {
  return layout.attempt(folder.step, folder.attempt) + "/pin.json";
}

std::string EncodePin(std::string_view note) {
  const Json json = {{"version", kPinVersion}, {"note", note}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string NoteOf(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "";
  const auto note = json.find("note");
  return note != json.end() && note->is_string() ? note->get<std::string>() : "";
}

}  // namespace

absl::Status WritePin(FileSystem& files, const StoreLayout& layout, const StepFolder& folder, std::string_view note) {
  return WriteFileDurably(files, PinPath(layout, folder), EncodePin(note));
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
  const std::string path = PinPath(layout, folder);
  absl::StatusOr<FileType> type = files.TypeOf(path);
  if (absl::IsNotFound(type.status())) return std::nullopt;
  if (!type.ok()) return type.status();
  if (*type != FileType::kRegular) return "";
  absl::StatusOr<std::string> text = ReadSmallFile(files, path, kPinBytesMax);
  if (text.ok()) return NoteOf(*text);
  if (absl::IsResourceExhausted(text.status()) || absl::IsDataLoss(text.status())) return "";
  return text.status();
}

absl::Status InheritPin(FileSystem& files, const StoreLayout& layout, const StepInfo& replaced, StepInfo& info) {
  if (!replaced.pinned) return absl::OkStatus();
  info.pinned = true;
  info.pin_note = replaced.pin_note;
  const auto attempt = FromHex(info.attempt);
  if (!attempt || replaced.attempt == info.attempt) return absl::OkStatus();
  return WritePin(files, layout, {info.step, AttemptId{*attempt}}, info.pin_note);
}

}  // namespace tidemark::storage
