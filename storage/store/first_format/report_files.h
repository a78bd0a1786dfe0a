// Metric reports of the first format: files in inbox/, and in the folder of the step that they are about.

#ifndef TIDEMARK_STORAGE_STORE_FIRST_FORMAT_REPORT_FILES_H_
#define TIDEMARK_STORAGE_STORE_FIRST_FORMAT_REPORT_FILES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/records/metric_report.h"
#include "storage/store/store_layout.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

std::string InboxPath(const StoreLayout& layout, std::string_view name);

// What is in inbox/; nothing if it is not there.
absl::StatusOr<std::vector<DirectoryEntry>> ListInbox(FileSystem& files, const StoreLayout& layout);

// A whole file that any process may have written. kDataLoss, with the path: it has more than `bytes_max`. Else what the
// file system answers.
absl::StatusOr<std::string> ReadCapped(FileSystem& files, const std::string& path, size_t bytes_max);

// kDataLoss: no such report, or too large for one. kUnimplemented: a newer version's. Both with the path. Else what the
// file system answers.
absl::StatusOr<MetricReport> ReadReport(FileSystem& files, const std::string& path);

// The reports in inbox/, in no order. One that cannot be used is left out, with a warning. Returns only errors that say
// nothing about what is on disk.
absl::StatusOr<std::vector<MetricReport>> ReadInbox(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                                    const std::function<void(std::string_view)>& warn);

// Puts what the reports in the step's folder say into `info`, which is of that attempt. One that cannot be used is left
// out, with a warning. Returns only errors that say nothing about what is on disk.
absl::Status ApplyStoredReports(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                const StepFolder& folder, const std::function<void(std::string_view)>& warn,
                                StepInfo& info);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_FIRST_FORMAT_REPORT_FILES_H_
