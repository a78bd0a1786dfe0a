// The files that are left in inbox/, and their names. The first byte of the input says whether the check at the end of
// the file is made right, or is what the input says, and whether it is a report or a request; then comes the name, its
// length before it, and the file.

#include <string>

#include "fmt/format.h"
#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/records/metric_report.h"
#include "storage/store/first_format/store_request.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::fuzz {
namespace {

void TryName(std::string_view name) {
  storage::IsMetricFileName(name);
  if (storage::IsRequestFileName(name)) {
    Require(name.find('/') == std::string_view::npos, "a name of a request is a path");
  }
  const auto parsed = storage::ParseInboxFileName(name);
  if (!parsed) return;
  Require(storage::IsMetricFileName(parsed->metric_file), "a name in the inbox gives none for the step's folder");
  // No name leads out of the folder that it is in.
  Require(name.find('/') == std::string_view::npos && parsed->metric_file.find('/') == std::string::npos,
          "a name of a report is a path");
}

void TryReport(const std::string& bytes) {
  const absl::StatusOr<storage::MetricReport> report = storage::DecodeMetricReport(bytes);
  if (!report.ok()) {
    Require(absl::IsDataLoss(report.status()) || absl::IsUnimplemented(report.status()),
            "a report is refused for another reason than damage or a newer version");
    return;
  }
  Require(storage::ValidateEvaluation(report->evaluation).ok(), "a report breaks the rules of evaluations");
  const std::string written = storage::EncodeMetricReport(*report);
  // Escapes make it longer, which may be too long.
  if (written.size() > storage::kMetricReportBytesMax) {
    return Require(bytes.size() > storage::kMetricReportBytesMax / 8, "a report becomes too long");
  }
  const absl::StatusOr<storage::MetricReport> again = storage::DecodeMetricReport(written);
  Require(again.ok() && storage::EncodeMetricReport(*again) == written,
          "a report is not what it was once it is written");
  StepInfo info;
  storage::ApplyEvaluation(info, report->evaluation);
  Require(storage::HasEvaluation(info, report->evaluation), "an evaluation is not there once it is applied");
  storage::ApplyEvaluation(info, again->evaluation);
  Require(info.evaluations.size() == 1, "a report that comes twice is there twice");
}

void TryRequest(const std::string& bytes) {
  const absl::StatusOr<storage::StoreRequest> request = storage::DecodeStoreRequest(bytes);
  if (!request.ok()) {
    return Require(absl::IsDataLoss(request.status()) || absl::IsUnimplemented(request.status()),
                   "a request is refused for another reason than damage or a newer version");
  }
  const std::string written = storage::EncodeStoreRequest(*request);
  const absl::StatusOr<storage::StoreRequest> again = storage::DecodeStoreRequest(written);
  Require(again.ok() && storage::EncodeStoreRequest(*again) == written,
          "a request is not what it was once it is written");
  const std::string name = storage::RequestFileName({request->step, request->attempt}, written);
  Require(storage::IsRequestFileName(name), "a request's name is none");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  const tidemark::fuzz::AllocationBudget budget(size);
  fuzz::FuzzInput in(data, size);
  const auto how = in.Take<uint8_t>();
  const bool as_it_is = (how & 1) != 0;
  const bool request = (how & 2) != 0;
  fuzz::TryName(in.TakeText(in.Take<uint8_t>()));
  std::string report(in.TakeRest());
  if (!as_it_is) {
    report += fmt::format(",\"check\":\"{:016x}\"}}\n", storage::ChecksumOf(fuzz::AsBytes(report)));
  }
  request ? fuzz::TryRequest(report) : fuzz::TryReport(report);
  return 0;
}
