// The manifest record by record, for people: what a tool shows who looks for damage, or for what a question did not
// show.

#ifndef TIDEMARK_STORAGE_MANIFEST_MANIFEST_DUMP_H_
#define TIDEMARK_STORAGE_MANIFEST_MANIFEST_DUMP_H_

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

struct DumpedRecord {
  std::string key;      // KeyText's; the key's bytes where it is none of the manifest's
  std::string value;    // the JSON object that it is; empty for the keys of indices, which have none
  absl::Status status;  // kDataLoss: why key or value are not what they must be. kUnimplemented: of a newer version
};

// What key and value say. Pure.
DumpedRecord DumpRecord(std::string_view key, std::string_view value);

// Opens the manifest at `path` to read, beside a live writer or not, and calls `visit` with every record whose key, as
// DumpRecord has it, begins with `prefix`, in the order of the database's keys, until it returns false; one that
// cannot be decoded is visited too. kNotFound: there is no manifest. kUnimplemented: the store's record is of a newer
// version; nothing is visited. kDataLoss: the database is damaged. Keys before a damaged block of a table have been
// visited then. If a log is damaged, all that was written before the damage has been visited.
absl::Status DumpManifest(FileSystem& files, const std::string& path, std::string_view prefix,
                          absl::FunctionRef<bool(const DumpedRecord&)> visit);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_MANIFEST_DUMP_H_
