// The report as one page. Pure.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_PAGE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_PAGE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "tools/checkpoint_inspect/report/report_data.h"
#include "tools/checkpoint_inspect/report/report_survey.h"

namespace tidemark::inspect {

struct ReportPageContents {
  std::string title;
  std::string directory;  // the store
  std::string store_id;
  absl::Time now;  // ages count from here
  const ReportData& data;
  const ReportSurvey* survey = nullptr;  // null: no tensor was looked at
  uint64_t read_bytes_max = 0;           // that the survey was held to
};

// Whatever comes from the store is escaped.
std::string ReportPage(const ReportPageContents& contents);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_REPORT_REPORT_PAGE_H_
