// Turns a store of the first format into one with a journal. In the first format the truth is a RocksDB database,
// manifest/, and files that a later change has not reached yet: pins and reports in steps' folders, deletion marks
// there, reports and requests in inbox/.

#ifndef TIDEMARK_STORAGE_STORE_FIRST_FORMAT_CONVERT_H_
#define TIDEMARK_STORAGE_STORE_FIRST_FORMAT_CONVERT_H_

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/shard/ids.h"
#include "storage/shard/shard_reader.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Whether the store is of the first format: it has never had a journal, and has a manifest, or attempts whose ids are
// random.
absl::StatusOr<bool> IsOfFirstFormat(FileSystem& files, const StoreLayout& layout);

// Makes the journal from what the first format has. A crash leaves the store as it was, or converted. Where the
// manifest is lost or damaged, whole attempts are taken for committed, as of RebuildJournal. What cannot be read of the
// files beside the manifest is left out, with a warning. Steps' files are not touched. Precondition: the caller holds
// the store.
absl::Status ConvertFirstFormat(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                const ShardReadOptions& read, const std::function<void(std::string_view)>& warn);

// Removes manifest/, inbox/ and disk-reserve, where they are. Best effort, with a warning.
void RemoveFirstFormat(FileSystem& files, const StoreLayout& layout, const std::function<void(std::string_view)>& warn);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_FIRST_FORMAT_CONVERT_H_
