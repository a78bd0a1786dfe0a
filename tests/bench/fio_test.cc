#include "bench/fio.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::bench {
namespace {

using ::testing::HasSubstr;
using ::tidemark::storage::IsOk;

// What fio 3.33 reports, cut down to what is near the numbers that count.
constexpr const char* kReport = R"(fio: a warning that stands before the report
{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "tidemark-bench",
      "error" : 0,
      "job options" : {"rw" : "write", "bs" : "1048576", "end_fsync" : "1"},
      "read" : {"io_bytes" : 0, "bw_bytes" : 0, "runtime" : 0},
      "write" : {"io_bytes" : 2147483648, "bw_bytes" : 1654455815, "runtime" : 1298},
      "job_runtime" : 1297
    }
  ]
})";

std::string With(const std::string& from, const std::string& to) {
  std::string report = kReport;
  report.replace(report.find(from), from.size(), to);
  return report;
}

TEST(ParseFioRate, IsBytesByTheRuntimeThatCountsTheSync) {
  const absl::StatusOr<double> rate = ParseFioRate(kReport, FioDirection::kWrite);
  ASSERT_THAT(rate, IsOk());
  EXPECT_DOUBLE_EQ(*rate, 2147483648.0 / 1.298);
}

TEST(ParseFioRate, RefusesADirectionInWhichNothingWasTransferred) {
  const absl::StatusOr<double> rate = ParseFioRate(kReport, FioDirection::kRead);
  EXPECT_EQ(rate.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(rate.status().message(), HasSubstr("0 bytes in 0 ms are no rate"));
}

TEST(ParseFioRate, RefusesAJobThatFailed) {
  const absl::StatusOr<double> rate = ParseFioRate(With("\"error\" : 0", "\"error\" : 28"), FioDirection::kWrite);
  EXPECT_EQ(rate.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(rate.status().message(), HasSubstr("failed with error 28"));
}

TEST(ParseFioRate, RefusesWhatIsNoReport) {
  for (const std::string text : {"", "fio: command not understood", "{\"jobs\": []}", "{\"jobs\": [{"}) {
    const absl::StatusOr<double> rate = ParseFioRate(text, FioDirection::kWrite);
    EXPECT_EQ(rate.status().code(), absl::StatusCode::kInternal) << text;
    EXPECT_THAT(rate.status().message(), HasSubstr("its report is not what was expected")) << text;
  }
  EXPECT_EQ(ParseFioRate(With("1298", "\"soon\""), FioDirection::kWrite).status().code(), absl::StatusCode::kInternal);
}

TEST(FioProblem, SaysThatFioIsNotInstalledOrTriesIt) {
  const std::string problem = FioProblem("/proc/no/such/folder");
  EXPECT_THAT(problem, testing::AnyOf("fio is not installed", HasSubstr("/proc/no/such/folder")));
}

}  // namespace
}  // namespace tidemark::bench
