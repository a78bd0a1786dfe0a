// Files of the first format, as the libraries that had it wrote them. This library only reads them.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_FIRST_FORMAT_WRITTEN_FILES_H_
#define TIDEMARK_TESTS_STORAGE_STORE_FIRST_FORMAT_WRITTEN_FILES_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/records/json_fields.h"
#include "storage/records/metric_report.h"
#include "storage/store/first_format/store_request.h"
#include "tests/storage/records/checked_object.h"

namespace tidemark::storage {

inline std::string EncodeMetricReport(const MetricReport& report) {
  ScopedJson json = EncodeEvaluation(report.evaluation);
  (*json)["version"] = kMetricReportVersion;
  (*json)["store"] = ToHex(report.store.bytes);
  (*json)["step"] = report.step;
  (*json)["attempt"] = ToHex(report.attempt.bytes);
  return WithCheck(DumpJson(std::move(json)));
}

// "<name of the step's folder>-<digits of the evaluator>.json": a report's name in inbox/.
inline std::string InboxFileName(int64_t step, const AttemptId& attempt, std::string_view evaluator) {
  return StepFolderName(step, attempt) + MetricFileName(evaluator).substr(std::string_view("metrics").size());
}

inline std::string EncodeStoreRequest(const StoreRequest& request) {
  return WithCheck(DumpJson(JsonObject("version", kStoreRequestVersion, "request", RequestKindName(request.kind),
                                       "store", ToHex(request.store.bytes), "step", request.step, "attempt",
                                       ToHex(request.attempt.bytes), "text", request.text, "asker", request.asker,
                                       "asked_unix_ns", absl::ToUnixNanos(request.asked))));
}

// "request-<name of the step's folder>-<32 hexadecimal digits of the bytes' XXH3-128>.json": its name in inbox/.
inline std::string RequestFileName(const StepFolder& folder, std::string_view bytes) {
  return fmt::format("request-{}-{}.json", StepFolderName(folder.step, folder.attempt),
                     ToHex(DigestOf(std::as_bytes(std::span(bytes))).bytes));
}

// pin.json and deleted.json.
inline std::string EncodeFolderNote(std::string_view note, const std::vector<std::string>& tags) {
  ScopedJson json = JsonObject("version", 1, "note", note);
  if (tags.empty()) return DumpJson(std::move(json)) + "\n";
  (*json)["tags"] = tags;
  return WithCheck(DumpJson(std::move(json)));
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_FIRST_FORMAT_WRITTEN_FILES_H_
