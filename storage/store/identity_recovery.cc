#include "storage/store/identity_recovery.h"

#include <memory>
#include <optional>
#include <string>

#include "fmt/format.h"
#include "storage/index/manifest.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

// Of an index or a manifest. nullopt: there is none, or it is damaged.
absl::StatusOr<std::optional<StoreId>> AskDatabase(FileSystem& files, const std::string& path) {
  // To open one that may be changing is tried many times.
  const absl::Status there = files.TypeOf(path).status();
  if (absl::IsNotFound(there)) return std::nullopt;
  if (!there.ok()) return there;
  const absl::StatusOr<std::unique_ptr<Manifest>> manifest = Manifest::OpenReadOnly(files, path);
  if (manifest.ok()) return (*manifest)->store_id();
  return IsMissingOrDamaged(manifest.status()) ? absl::StatusOr<std::optional<StoreId>>(std::nullopt)
                                               : manifest.status();
}

absl::StatusOr<StoreId> AskContents(FileSystem& files, const StoreLayout& layout) {
  for (const std::string& path : {layout.index(), layout.manifest()}) {
    const absl::StatusOr<std::optional<StoreId>> id = AskDatabase(files, path);
    if (!id.ok()) return id.status();
    if (id->has_value()) return **id;
  }
  return FindStoreId(files, layout);
}

}  // namespace

absl::StatusOr<FoundIdentity> FindIdentity(FileSystem& files, const StoreLayout& layout) {
  int format = 0;
  absl::StatusOr<StoreId> written = ReadStoreIdentity(files, layout, &format);
  if (written.ok()) return FoundIdentity{.id = *written, .written = absl::OkStatus(), .format = format};
  if (!IsMissingOrDamaged(written.status())) return written.status();
  absl::StatusOr<StoreId> contents = AskContents(files, layout);
  if (contents.ok()) return FoundIdentity{.id = *contents, .written = written.status()};
  if (!absl::IsNotFound(contents.status())) return contents.status();
  if (absl::IsDataLoss(written.status())) {
    return absl::DataLossError(fmt::format("{}; neither the index nor a shard has the store's id",
                                           std::string(written.status().message())));
  }
  if (absl::Status status = CheckIsEmpty(files, layout); !status.ok()) {
    // Another process may be making the store right now: it writes store.json before anything else of note.
    written = ReadStoreIdentity(files, layout, &format);
    if (!written.ok()) return status;
    return FoundIdentity{.id = *written, .written = absl::OkStatus(), .format = format};
  }
  return FoundIdentity{.id = std::nullopt, .written = written.status()};
}

}  // namespace tidemark::storage
