#include "storage/manifest/inbox_files.h"

#include "fmt/format.h"
#include "storage/shard/ids.h"

namespace tidemark::storage {
namespace {

constexpr std::string_view kDraftEnd = ".tmp";

}  // namespace

std::string InboxPath(const StoreLayout& layout, std::string_view name) {
  return fmt::format("{}/{}", layout.inbox(), name);
}

absl::StatusOr<std::vector<DirectoryEntry>> ListInbox(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.inbox());
  if (absl::IsNotFound(entries.status())) return std::vector<DirectoryEntry>();
  return entries;
}

absl::Status DeliverToInbox(FileSystem& files, const StoreLayout& layout, std::string_view name,
                            std::string_view bytes) {
  absl::Status status = files.CreateDirectory(layout.inbox());
  if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  // Also where it was there: a crash may have come between its making and this.
  if (status = files.SyncDirectory(layout.directory()); !status.ok()) return status;
  const std::string path = InboxPath(layout, name);
  const auto deliver = [&] {
    return WriteFileDurably(files, path, fmt::format("{}.{}{}", path, ToHex(RandomBytes16()), kDraftEnd), bytes);
  };
  status = deliver();
  // The draft of the later of two may have been taken for what a dead writer left.
  return absl::IsNotFound(status) ? deliver() : status;
}

std::optional<std::string_view> NameOfDraft(std::string_view name) {
  if (!name.ends_with(kDraftEnd)) return std::nullopt;
  name.remove_suffix(kDraftEnd.size());
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !FromHex(name.substr(dot + 1))) return std::nullopt;
  return name.substr(0, dot);
}

}  // namespace tidemark::storage
