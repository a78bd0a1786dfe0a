#include "storage/store/first_format/report_files.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fmt/format.h"
#include "storage/io/printable_text.h"

namespace tidemark::storage {
namespace {

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), fmt::format("{}: {}", path, std::string(status.message())));
}

// Whether nothing follows from the error for others: the file is not a report that can be used.
bool IsAboutFile(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsUnimplemented(status) || absl::IsNotFound(status);
}

// Whether this is the report that the folder and the name promise.
absl::Status CheckPlace(const MetricReport& report, const StoreId& store, const StepFolder& folder,
                        const std::string& path, const std::string& name) {
  if (report.store != store) {
    return absl::DataLossError(fmt::format("{}: it is about store {}", path, ToHex(report.store.bytes)));
  }
  if (report.step != folder.step || report.attempt != folder.attempt ||
      MetricFileName(report.evaluation.evaluator) != name) {
    return absl::DataLossError(fmt::format("{}: it is the result of evaluator '{}' for step {}, attempt {}", path,
                                           PrintableText(report.evaluation.evaluator), report.step,
                                           ToHex(report.attempt.bytes)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string InboxPath(const StoreLayout& layout, std::string_view name) {
  return fmt::format("{}/{}", layout.inbox(), name);
}

absl::StatusOr<std::vector<DirectoryEntry>> ListInbox(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.inbox());
  if (absl::IsNotFound(entries.status())) return std::vector<DirectoryEntry>();
  return entries;
}

absl::StatusOr<std::string> ReadCapped(FileSystem& files, const std::string& path, size_t bytes_max) {
  absl::StatusOr<std::unique_ptr<File>> file = files.OpenForRead(path, /*direct=*/false);
  if (!file.ok()) return file.status();
  absl::StatusOr<uint64_t> size = (*file)->Size();
  if (!size.ok()) return size.status();
  if (*size > bytes_max) {
    return absl::DataLossError(fmt::format("{}: {} bytes, where at most {} are expected", path, *size, bytes_max));
  }
  std::string bytes(*size, '\0');
  if (absl::Status status = (*file)->ReadAt(0, std::as_writable_bytes(std::span(bytes))); !status.ok()) return status;
  return bytes;
}

absl::StatusOr<MetricReport> ReadReport(FileSystem& files, const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadCapped(files, path, kMetricReportBytesMax);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<MetricReport> report = DecodeMetricReport(*bytes);
  if (!report.ok()) return WithPath(path, report.status());
  return report;
}

absl::StatusOr<std::vector<MetricReport>> ReadInbox(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                                    const std::function<void(std::string_view)>& warn) {
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = ListInbox(files, layout);
  if (!entries.ok()) return entries.status();
  std::vector<MetricReport> reports;
  for (const DirectoryEntry& entry : *entries) {
    const std::optional<InboxName> name = ParseInboxFileName(entry.name);
    if (entry.type != FileType::kRegular || !name) continue;
    const std::string path = InboxPath(layout, entry.name);
    absl::StatusOr<MetricReport> report = ReadReport(files, path);
    const absl::Status status =
        report.ok() ? CheckPlace(*report, store, name->folder, path, name->metric_file) : absl::Status(report.status());
    if (status.ok()) {
      reports.push_back(*std::move(report));
    } else if (IsAboutFile(status)) {
      warn(fmt::format("a report is dropped, because it cannot be used: {}", std::string(status.message())));
    } else {
      return status;
    }
  }
  return reports;
}

absl::Status ApplyStoredReports(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                const StepFolder& folder, const std::function<void(std::string_view)>& warn,
                                StepInfo& info) {
  const std::string directory = layout.attempt(folder.step, folder.attempt);
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(directory);
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (entry.type != FileType::kRegular || !IsMetricFileName(entry.name)) continue;
    const std::string path = fmt::format("{}/{}", directory, entry.name);
    absl::StatusOr<MetricReport> report = ReadReport(files, path);
    const absl::Status status =
        report.ok() ? CheckPlace(*report, store, folder, path, entry.name) : absl::Status(report.status());
    if (status.ok()) {
      ApplyEvaluation(info, report->evaluation);
    } else if (IsAboutFile(status)) {
      warn(fmt::format("step {} lacks an evaluation, because its report cannot be used: {}", folder.step,
                       std::string(status.message())));
    } else {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace tidemark::storage
