#include "storage/manifest/identity_recovery.h"

#include <memory>
#include <string>

#include "fmt/format.h"
#include "storage/manifest/attempt_reader.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/store_identity.h"

namespace tidemark::storage {
namespace {

absl::StatusOr<StoreId> AskContents(FileSystem& files, const StoreLayout& layout) {
  // To open one that may be changing is tried many times.
  const absl::Status there = files.TypeOf(layout.manifest()).status();
  if (absl::IsNotFound(there)) return FindStoreId(files, layout);
  if (!there.ok()) return there;
  absl::StatusOr<std::unique_ptr<Manifest>> manifest = Manifest::OpenReadOnly(files, layout.manifest());
  if (manifest.ok()) return (*manifest)->store_id();
  if (!IsMissingOrDamaged(manifest.status())) return manifest.status();
  return FindStoreId(files, layout);
}

}  // namespace

absl::StatusOr<FoundIdentity> FindIdentity(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<StoreId> written = ReadStoreIdentity(files, layout);
  if (written.ok()) return FoundIdentity{.id = *written, .written = absl::OkStatus()};
  if (!IsMissingOrDamaged(written.status())) return written.status();
  absl::StatusOr<StoreId> contents = AskContents(files, layout);
  if (contents.ok()) return FoundIdentity{.id = *contents, .written = written.status()};
  if (!absl::IsNotFound(contents.status())) return contents.status();
  if (absl::IsDataLoss(written.status())) {
    return absl::DataLossError(fmt::format("{}; neither the manifest nor a shard has the store's id",
                                           std::string(written.status().message())));
  }
  if (absl::Status status = CheckIsEmpty(files, layout); !status.ok()) {
    // Another process may be making the store right now: it writes store.json before anything else of note.
    written = ReadStoreIdentity(files, layout);
    if (!written.ok()) return status;
    return FoundIdentity{.id = *written, .written = absl::OkStatus()};
  }
  return FoundIdentity{.id = std::nullopt, .written = written.status()};
}

}  // namespace tidemark::storage
