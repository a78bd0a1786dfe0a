// store.json: {"format": 1, "store_id": "<32 hex digits>"}. Says, before anything else is opened, that a directory is a
// store, which, and whether this library can read it.

#ifndef TIDEMARK_STORAGE_MANIFEST_STORE_IDENTITY_H_
#define TIDEMARK_STORAGE_MANIFEST_STORE_IDENTITY_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/store_layout.h"

namespace tidemark::storage {

inline constexpr int kStoreFormat = 1;

std::string EncodeStoreIdentity(const StoreId& id);

// kDataLoss: no such text. kUnimplemented: a newer format.
absl::StatusOr<StoreId> DecodeStoreIdentity(std::string_view text);

// kNotFound: no such file. Other errors with the path.
absl::StatusOr<StoreId> ReadStoreIdentity(FileSystem& files, const StoreLayout& layout);

// Whether a store may be made or mended in the directory: ok if it is empty or holds nothing but what a store holds.
// kFailedPrecondition names what else is there. Hidden files and lost+found do not count.
absl::Status CheckIsStoreOrEmpty(FileSystem& files, const StoreLayout& layout);

// What the holder of the lock writes into it: {"pid": .., "host": .., "program": .., "since": ..}.
std::string DescribeThisProcess();

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_STORE_IDENTITY_H_
