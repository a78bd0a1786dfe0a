// The statistics' file: what a collector of metrics reads.

#ifndef TIDEMARK_SNAPSHOT_METRICS_FILE_H_
#define TIDEMARK_SNAPSHOT_METRICS_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark {

// Creates or replaces `path`, so that whoever reads it finds the old text or the new, whole. Not synced: after power
// loss it is of no use to anybody. Other users can read it, for a collector is one: see FileSystem::CreateReadable. The
// temporary file is `path` with ".tmp" behind it, which a collector that takes "*.prom" leaves alone; one that was left
// behind is replaced. After an error the old text is in place.
absl::Status ReplaceMetricsFile(storage::FileSystem& files, const std::string& path, std::string_view text);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_METRICS_FILE_H_
