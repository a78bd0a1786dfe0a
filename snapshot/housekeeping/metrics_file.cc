#include "snapshot/housekeeping/metrics_file.h"

#include <cstddef>
#include <span>

namespace tidemark {
namespace {

absl::Status WriteNew(storage::FileSystem& files, const std::string& path, std::string_view text) {
  auto file = files.CreateReadable(path);
  if (!file.ok()) return file.status();
  const absl::Status status = (*file)->WriteAt(0, std::as_bytes(std::span(text.data(), text.size())));
  const absl::Status closed = (*file)->Close();
  return status.ok() ? closed : status;
}

}  // namespace

absl::Status ReplaceMetricsFile(storage::FileSystem& files, const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  absl::Status status = WriteNew(files, temporary, text);
  if (absl::IsAlreadyExists(status)) {
    if (absl::Status removed = files.RemoveFile(temporary); !removed.ok()) return removed;
    status = WriteNew(files, temporary, text);
  }
  if (status.ok()) status = files.Rename(temporary, path);
  if (!status.ok() && !absl::IsAlreadyExists(status)) files.RemoveFile(temporary).IgnoreError();
  return status;
}

absl::Status MetricsFile::Update(bool at_once, uint64_t changes, absl::FunctionRef<std::string()> text) {
  if (path_.empty() || (!at_once && until_due() > absl::ZeroDuration())) return last_try_;
  since_update_ = Stopwatch();  // also where there is nothing to write
  if (changes == written_changes_) return last_try_;
  last_try_ = ReplaceMetricsFile(files_, path_, text());
  if (last_try_.ok()) written_changes_ = changes;
  return last_try_;
}

}  // namespace tidemark
