#include "tidemark/statistics.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/statistics_collector.h"

namespace tidemark {
namespace {

using testing::ElementsAre;
using testing::Pair;

// Reads the text format as strictly as its specification says, and a little more strictly: every sample must belong to
// the metric whose HELP and TYPE came last, and no two samples may be the same series.
class PrometheusReader {
 public:
  struct Sample {
    std::string name;
    std::map<std::string, std::string> labels;
    double value = 0;
  };

  static void Parse(const std::string& text, PrometheusReader& reader) {
    ASSERT_FALSE(text.empty());
    ASSERT_EQ(text.back(), '\n');
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      reader.Line(text.substr(begin, end - begin));
      if (testing::Test::HasFatalFailure()) return;
      begin = end + 1;
    }
    EXPECT_TRUE(reader.help_.empty()) << "HELP without TYPE: " << reader.help_;
  }

  double Value(const std::string& name, const std::map<std::string, std::string>& labels = {}) const {
    for (const Sample& sample : samples) {
      if (sample.name == name && sample.labels == labels) return sample.value;
    }
    ADD_FAILURE() << "no sample " << name;
    return std::nan("");
  }

  std::map<std::string, std::string> types;
  std::vector<Sample> samples;

 private:
  static bool IsName(const std::string& name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
    return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:") ==
           std::string::npos;
  }

  void Line(const std::string& line) {
    SCOPED_TRACE(line);
    if (line.starts_with("# HELP ")) {
      ASSERT_TRUE(help_.empty());
      help_ = line.substr(7, line.find(' ', 7) - 7);
      ASSERT_TRUE(IsName(help_) && help_.starts_with("tidemark_"));
      ASSERT_GT(line.size(), 7 + help_.size() + 1) << "no help";
      ASSERT_FALSE(types.contains(help_)) << "twice";
    } else if (line.starts_with("# TYPE ")) {
      const size_t space = line.find(' ', 7);
      ASSERT_EQ(line.substr(7, space - 7), help_);
      const std::string type = line.substr(space + 1);
      ASSERT_TRUE(type == "counter" || type == "gauge" || type == "histogram");
      types[help_] = type;
      metric_ = std::exchange(help_, "");
    } else {
      ReadSample(line);
    }
  }

  void ReadSample(const std::string& line) {
    Sample sample;
    size_t at = line.find_first_of("{ ");
    ASSERT_NE(at, std::string::npos);
    sample.name = line.substr(0, at);
    ASSERT_TRUE(IsName(sample.name));
    const std::string suffix = sample.name.substr(metric_.size());
    ASSERT_TRUE(sample.name.starts_with(metric_));
    if (types[metric_] == "histogram") {
      ASSERT_TRUE(suffix == "_bucket" || suffix == "_sum" || suffix == "_count");
    } else {
      ASSERT_EQ(suffix, "");
      ASSERT_EQ(types[metric_] == "counter", metric_.ends_with("_total"));
    }
    if (line[at] == '{') {
      do {
        ReadLabel(line, at, sample);
        if (testing::Test::HasFatalFailure()) return;
      } while (line[at] == ',');
      ASSERT_EQ(line[at], '}');
      ++at;
    }
    ASSERT_EQ(line[at], ' ');
    const std::string number = line.substr(at + 1);
    ASSERT_FALSE(number.empty());
    ASSERT_EQ(number.find(' '), std::string::npos);
    ASSERT_TRUE(absl::SimpleAtod(number, &sample.value)) << number;
    ASSERT_TRUE(series_.insert({sample.name, sample.labels}).second) << "twice";
    samples.push_back(sample);
  }

  static void ReadLabel(const std::string& line, size_t& at, Sample& sample) {
    const size_t equals = line.find('=', at);
    ASSERT_NE(equals, std::string::npos);
    const std::string name = line.substr(at + 1, equals - at - 1);
    ASSERT_TRUE(IsName(name));
    ASSERT_EQ(line[equals + 1], '"');
    std::string value;
    for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
      if (line[at] == '\\') {
        ++at;
        ASSERT_LT(at, line.size());
        ASSERT_TRUE(line[at] == '\\' || line[at] == '"' || line[at] == 'n') << "no such escape";
        value += line[at] == 'n' ? '\n' : line[at];
      } else {
        value += line[at];
      }
    }
    ASSERT_LT(at, line.size());
    ++at;
    ASSERT_TRUE(sample.labels.emplace(name, value).second);
  }

  std::string help_;
  std::string metric_;
  std::set<std::pair<std::string, std::map<std::string, std::string>>> series_;
};

SaveOutcome Committed(int64_t step) {
  SaveOutcome outcome;
  outcome.step = step;
  outcome.held = {.total = absl::Milliseconds(30),
                  .consumers = absl::ZeroDuration(),
                  .room = absl::Milliseconds(10),
                  .copy = absl::Milliseconds(20)};
  outcome.write = absl::Seconds(2);
  outcome.commit = absl::Milliseconds(5);
  outcome.info.logical_bytes = 1000;
  outcome.info.stored_bytes = 600;
  outcome.info.reused_bytes = 100;
  return outcome;
}

TEST(StatisticsCollector, CountsWhatASaveTookAndBecame) {
  StatisticsCollector collector;
  collector.Begin();
  collector.Begin();
  EXPECT_EQ(collector.Get().in_flight, 2);
  EXPECT_FALSE(collector.Get().last_committed_step.has_value());
  collector.Settle(Committed(7), absl::FromUnixSeconds(100));
  SaveOutcome failed;
  failed.step = 8;
  failed.status = absl::InternalError("EIO");
  failed.held.copy = absl::Milliseconds(1);
  collector.Settle(failed, absl::FromUnixSeconds(200));
  const CheckpointerStatistics statistics = collector.Get();
  EXPECT_EQ(statistics.in_flight, 0);
  EXPECT_EQ(statistics.saves_committed, 1u);
  EXPECT_EQ(statistics.saves_failed, 1u);
  EXPECT_EQ(statistics.last_committed_step, 7);
  EXPECT_EQ(statistics.last_committed_time, absl::FromUnixSeconds(100));
  EXPECT_EQ(statistics.logical_bytes, 1000u);
  EXPECT_EQ(statistics.stored_bytes, 600u);
  EXPECT_EQ(statistics.reused_bytes, 100u);
  EXPECT_EQ(statistics.blocked.at("consumers").count, 0u);
  EXPECT_EQ(statistics.blocked.at("room").count, 1u);
  EXPECT_EQ(statistics.blocked.at("copy").count, 2u);
  EXPECT_EQ(statistics.background.at("write").count, 1u);
  EXPECT_DOUBLE_EQ(statistics.background.at("write").sum_seconds, 2.0);
}

TEST(StatisticsCollector, PutsADurationIntoTheBucketWhoseEndIsNotBelowIt) {
  StatisticsCollector collector;
  collector.AddBackground("delete", absl::Seconds(1));
  collector.AddBackground("delete", absl::Milliseconds(1001));
  collector.AddBackground("delete", absl::Hours(1));
  const DurationHistogram histogram = collector.Get().background.at("delete");
  ASSERT_EQ(histogram.counts.size(), histogram.bounds.size() + 1);
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    EXPECT_EQ(histogram.counts[i], histogram.bounds[i] == 1.0 || histogram.bounds[i] == 3.0 ? 1u : 0u);
  }
  EXPECT_EQ(histogram.counts.back(), 1u);
  EXPECT_EQ(histogram.count, 3u);
}

TEST(StatisticsCollector, CountsASnapshotThatIsOnlyEvaluatedAsNeitherCommittedNorFailed) {
  StatisticsCollector collector;
  collector.Begin();
  SaveOutcome outcome;
  outcome.persist = false;
  collector.Settle(outcome, absl::UnixEpoch());
  EXPECT_EQ(collector.Get().saves_committed, 0u);
  EXPECT_EQ(collector.Get().saves_failed, 0u);
  EXPECT_EQ(collector.Get().in_flight, 0);
}

TEST(PrometheusText, IsWhatAStrictReaderTakes) {
  StatisticsCollector collector;
  collector.Begin();
  collector.Settle(Committed(1200), absl::FromUnixMillis(1700000000250));
  collector.AddBackground("evaluate", absl::Milliseconds(250));
  collector.AddSkipped("no room");
  collector.AddSkipped("no room");
  collector.AddSkipped("evaluator \"a\\b\": lagging");
  collector.AddDeleted(3);
  collector.AddRecorded(4);
  collector.AddRejected(5);
  CheckpointerStatistics statistics = collector.Get();
  statistics.staging_bytes_in_use = 4096;
  statistics.staging_bytes_max = uint64_t{1} << 62;
  PrometheusReader reader;
  PrometheusReader::Parse(PrometheusText(statistics), reader);
  if (HasFatalFailure()) return;
  EXPECT_EQ(reader.Value("tidemark_saves_committed_total"), 1);
  EXPECT_EQ(reader.Value("tidemark_steps_deleted_total"), 3);
  EXPECT_EQ(reader.Value("tidemark_reports_recorded_total"), 4);
  EXPECT_EQ(reader.Value("tidemark_reports_rejected_total"), 5);
  EXPECT_EQ(reader.Value("tidemark_skipped_total", {{"reason", "no room"}}), 2);
  EXPECT_EQ(reader.Value("tidemark_skipped_total", {{"reason", "evaluator \"a\\b\": lagging"}}), 1);
  EXPECT_EQ(reader.Value("tidemark_staging_bytes_in_use"), 4096);
  EXPECT_EQ(reader.Value("tidemark_staging_bytes_max"), std::ldexp(1.0, 62));
  EXPECT_EQ(reader.Value("tidemark_last_committed_step"), 1200);
  EXPECT_EQ(reader.Value("tidemark_last_committed_timestamp_seconds"), 1700000000.250);
  EXPECT_EQ(reader.types.at("tidemark_blocked_seconds"), "histogram");
}

TEST(PrometheusText, HasCumulativeBucketsThatEndInTheCount) {
  CheckpointerStatistics statistics;
  statistics.blocked["copy"] = {.bounds = {0.5, 1}, .counts = {2, 3, 4}, .sum_seconds = 12.5, .count = 9};
  PrometheusReader reader;
  PrometheusReader::Parse(PrometheusText(statistics), reader);
  if (HasFatalFailure()) return;
  std::vector<std::pair<std::string, double>> buckets;
  for (const PrometheusReader::Sample& sample : reader.samples) {
    if (sample.name == "tidemark_blocked_seconds_bucket") buckets.emplace_back(sample.labels.at("le"), sample.value);
  }
  EXPECT_THAT(buckets, ElementsAre(Pair("0.5", 2), Pair("1", 5), Pair("+Inf", 9)));
  EXPECT_EQ(reader.Value("tidemark_blocked_seconds_sum", {{"phase", "copy"}}), 12.5);
  EXPECT_EQ(reader.Value("tidemark_blocked_seconds_count", {{"phase", "copy"}}), 9);
}

TEST(PrometheusText, LeavesOutTheLastCommittedStepWhereThereIsNone) {
  const std::string text = PrometheusText({});
  EXPECT_EQ(text.find("last_committed"), std::string::npos) << text;
}

}  // namespace
}  // namespace tidemark
