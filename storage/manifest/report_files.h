// Metric reports as files: in inbox/, and in the folder of the step that they are about.

#ifndef TIDEMARK_STORAGE_MANIFEST_REPORT_FILES_H_
#define TIDEMARK_STORAGE_MANIFEST_REPORT_FILES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/store_layout.h"
#include "storage/records/metric_report.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// A whole file that anybody may have written. kDataLoss, with the path: it has more than `bytes_max`. Else what the
// file system answers.
absl::StatusOr<std::string> ReadCapped(FileSystem& files, const std::string& path, size_t bytes_max);

// kDataLoss: no such report, or too large for one. kUnimplemented: a newer version's. Both with the path. Else what the
// file system answers.
absl::StatusOr<MetricReport> ReadReport(FileSystem& files, const std::string& path);

// Puts what the reports in the step's folder say into `info`, which is of that attempt. One that cannot be read, or is
// about something else, is left where it is, with a warning: the step is as good without it. Returns only errors that
// say nothing about what is on disk.
absl::Status ApplyStoredReports(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                const StepFolder& folder, const std::function<void(std::string_view)>& warn,
                                StepInfo& info);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_REPORT_FILES_H_
