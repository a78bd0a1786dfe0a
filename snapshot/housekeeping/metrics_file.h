// The statistics' file: what a collector of metrics reads.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_METRICS_FILE_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_METRICS_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "snapshot/stopwatch.h"
#include "storage/io/file_system.h"

namespace tidemark {

// Creates or replaces `path`, so that whoever reads it finds the old text or the new, whole. Not synced: after power
// loss it is of no use to anybody. Other users can read it, for a collector is one: see FileSystem::CreateReadable. The
// temporary file is `path` with ".tmp" behind it, which a collector that takes "*.prom" leaves alone; one that was left
// behind is replaced. After an error the old text is in place.
absl::Status ReplaceMetricsFile(storage::FileSystem& files, const std::string& path, std::string_view text);

// The file of one checkpointer: replaced when something has changed, but not in less than an interval.
// Thread-compatible.
class MetricsFile {
 public:
  // `path`: empty: there is none, and nothing is ever due.
  MetricsFile(storage::FileSystem& files, std::string path, absl::Duration interval)
      : files_(files), path_(std::move(path)), interval_(interval) {}

  // How long until it is to be looked at again; 0 or less: now. Update then begins the next interval.
  absl::Duration until_due() const {
    return path_.empty() ? absl::InfiniteDuration() : interval_ - since_update_.elapsed();
  }

  // Writes what `text` returns if it is due, or `at_once`, and `changes` is another number than at the last success.
  // Returns what came of the last try.
  absl::Status Update(bool at_once, uint64_t changes, absl::FunctionRef<std::string()> text);

 private:
  storage::FileSystem& files_;
  const std::string path_;
  const absl::Duration interval_;
  Stopwatch since_update_;
  uint64_t written_changes_ = 0;
  absl::Status last_try_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_METRICS_FILE_H_
