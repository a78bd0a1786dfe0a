// store.json: {"format": 2, "store_id": "<32 hex digits>", "check": "<16 hex digits>"}. Says, before anything else is
// opened, that a directory is a store, which, and whether this library can read it. A store of format 2 has a journal,
// or is to get one (first_format/convert.h).
// The check is there because a store id with a rotten bit is still a store id, and every shard would be another
// store's.

#ifndef TIDEMARK_STORAGE_STORE_STORE_IDENTITY_H_
#define TIDEMARK_STORAGE_STORE_STORE_IDENTITY_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

inline constexpr int kStoreFormat = 2;
// Its facts are in a RocksDB manifest and in files beside it, and opening it for writing converts it.
inline constexpr int kFirstStoreFormat = 1;

// Of kStoreFormat.
std::string EncodeStoreIdentity(const StoreId& id);

// kDataLoss: no such text, or the check is not that of the id. kUnimplemented: a newer format, whatever else is there.
absl::StatusOr<StoreId> DecodeStoreIdentity(std::string_view text);

// kNotFound: no such file. Other errors with the path. `*format`, if not null, becomes kStoreFormat or an older one.
absl::StatusOr<StoreId> ReadStoreIdentity(FileSystem& files, const StoreLayout& layout, int* format = nullptr);

// What tells something about the store, as opposed to the disk or the permissions under it, of which nothing follows:
// kNotFound and kDataLoss.
bool IsMissingOrDamaged(const absl::Status& status);

// Whether a store may be made in a directory without store.json. kFailedPrecondition names what stands against it:
// everything but hidden files, lost+found, and what the making of a store leaves when it is cut short before store.json
// is there: LOCK, store.json.tmp and an empty steps/.
absl::Status CheckIsEmpty(FileSystem& files, const StoreLayout& layout);

// What the holder of the lock writes into it: {"pid": .., "host": .., "program": .., "since": ..}.
std::string DescribeThisProcess();

// Whether the holder that left the note is checkpoint-inspect, which releases the store when its command is done. Also
// true if the note is empty: the holder has just taken the lock, and may be any program.
bool MayBeInspect(std::string_view note);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_STORE_IDENTITY_H_
