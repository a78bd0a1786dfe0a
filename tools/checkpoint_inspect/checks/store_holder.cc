#include "tools/checkpoint_inspect/checks/store_holder.h"

#include <cstdint>

#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "storage/io/draft_file_system.h"
#include "storage/io/file_system.h"
#include "storage/io/lock_note.h"
#include "storage/records/json_fields.h"
#include "storage/store/store_layout.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {

std::string HolderText(std::string_view note) {
  const nlohmann::json json = storage::ParseJson(note, nullptr, /*allow_exceptions=*/false);
  const bool known = json.is_object() && json.contains("pid") && json["pid"].is_number_integer() &&
                     json.contains("host") && json["host"].is_string() && json.contains("program") &&
                     json["program"].is_string();
  if (!known) {
    const std::string text = storage::PrintableNote(note);
    return text.empty() ? "another process" : fmt::format("another process ({})", text);
  }
  const std::string program = Escape(json["program"].get<std::string>());
  const std::string place =
      fmt::format("pid {} on {}", json["pid"].get<int64_t>(), Escape(json["host"].get<std::string>()));
  if (program == "checkpoint-inspect") return fmt::format("checkpoint-inspect ({})", place);
  return fmt::format("the trainer ({}, {})", program, place);
}

std::string StoreHolder(const std::string& directory) {
  const storage::StoreLayout layout(directory);
  storage::DraftFileSystem draft(storage::PosixFileSystem(), directory);
  if (!absl::IsUnavailable(draft.TryLock(layout.lock()).status())) return "";
  const absl::StatusOr<std::string> note = storage::PosixFileSystem().ReadNote(layout.lock(), storage::kNoteBytesMax);
  return HolderText(note.ok() ? *note : std::string());
}

}  // namespace tidemark::inspect
