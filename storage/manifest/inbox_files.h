// Files in inbox/: how they get there, whatever they say.

#ifndef TIDEMARK_STORAGE_MANIFEST_INBOX_FILES_H_
#define TIDEMARK_STORAGE_MANIFEST_INBOX_FILES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/store_layout.h"

namespace tidemark::storage {

std::string InboxPath(const StoreLayout& layout, std::string_view name);

// What is in it; nothing where nobody has made it.
absl::StatusOr<std::vector<DirectoryEntry>> ListInbox(FileSystem& files, const StoreLayout& layout);

// When this returns ok the file survives power loss. Makes inbox/ if need be, and never the store. One of the same name
// is replaced; several processes may deliver one at once, each from a draft of its own.
absl::Status DeliverToInbox(FileSystem& files, const StoreLayout& layout, std::string_view name,
                            std::string_view bytes);

// The name that a draft was to get, "<name>.<32 hexadecimal digits>.tmp"; nothing for another name.
std::optional<std::string_view> NameOfDraft(std::string_view name);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_INBOX_FILES_H_
