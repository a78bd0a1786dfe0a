// Turns a store of the first format into one with a journal. In the first format the truth is a RocksDB database,
// manifest/, and files that a later change has not reached yet: pins and reports in steps' folders, deletion marks
// there, reports and requests in inbox/.
//
// Stop the workers of older versions before: what they put into inbox/ while the store is converted, or later, is lost.

#ifndef TIDEMARK_STORAGE_STORE_FIRST_FORMAT_CONVERT_H_
#define TIDEMARK_STORAGE_STORE_FIRST_FORMAT_CONVERT_H_

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Whether the store is of the first format and not converted yet: it has neither a journal, nor one that was replaced,
// nor an index; and it has a manifest, or attempts whose ids are random. store.json does not count: it says format 2 as
// soon as a conversion begins.
absl::StatusOr<bool> IsOfFirstFormat(FileSystem& files, const StoreLayout& layout);

// Makes the journal from what the first format has. A crash leaves the store as it was, or converted. Whole attempts
// that are newer than their steps' records are taken for committed (AdoptAttempts), because a manifest may lack its end
// without a sign of it; but not those that were deleted, or whose saves failed. Where the manifest is lost or damaged,
// what is not whole is kept in quarantine. What cannot be read of the files beside the manifest is left out, with a
// warning. Preconditions: the caller holds the store, and store.json says a format that older libraries refuse: what
// they write from here on is not read.
absl::Status ConvertFirstFormat(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                const ShardReadOptions& read, const std::function<void(std::string_view)>& warn);

// Removes manifest/, inbox/ and disk-reserve, where they are. Best effort, with a warning.
void RemoveFirstFormat(FileSystem& files, const StoreLayout& layout, const std::function<void(std::string_view)>& warn);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_FIRST_FORMAT_CONVERT_H_
