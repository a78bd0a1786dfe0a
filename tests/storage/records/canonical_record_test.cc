#include "storage/records/canonical_record.h"

#include <bit>
#include <limits>
#include <random>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/tag.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

// A space in front leaves the record to the parser.
absl::StatusOr<StepRecord> Parse(const std::string& bytes) { return DecodeStepRecord(" " + bytes); }

class RecordMaker {
 public:
  explicit RecordMaker(uint64_t seed) : random_(seed) {}

  StepRecord Make() {
    using enum StepState;
    StepRecord record;
    StepInfo& info = record.info;
    info.step = static_cast<int64_t>(random_() >> Draw(64)) & std::numeric_limits<int64_t>::max();
    const StepState states[] = {kCommitted, kDamaged, kLost, kFailed, kDeleted, kUnsaved};
    info.state = states[Draw(6)];
    info.attempt = ToHex(Id());
    info.sequence = random_() >> Draw(64);
    info.created = absl::FromUnixNanos(static_cast<int64_t>(random_()));
    info.blocked = absl::Nanoseconds(static_cast<int64_t>(random_()) >> Draw(63));
    info.world_size = static_cast<uint32_t>(random_());
    info.metrics = DrawMetrics();
    info.user_metadata = Text();
    info.entry_count = random_() >> Draw(64);
    info.logical_bytes = random_();
    info.reason = Text();
    info.pinned = Draw(2) == 0;
    info.pin_note = Text();
    info.kept = Text();
    for (size_t i = info.pinned ? Draw(3) : 0; i > 0; --i) AddTag(info.tags, fmt::format("v{}", Draw(10)));
    for (size_t i = Draw(3); i > 0; --i) {
      info.evaluations.push_back({.evaluator = Text(),
                                  .worker = Text(),
                                  .outcome = static_cast<Evaluation::Outcome>(Draw(3)),
                                  .reason = Text(),
                                  .metrics = DrawMetrics(),
                                  .unhealthy = Text(),
                                  .reported = absl::FromUnixNanos(static_cast<int64_t>(random_())),
                                  .took = absl::Nanoseconds(static_cast<int64_t>(random_() >> 1))});
    }
    for (size_t i = Draw(3); i > 0; --i) {
      record.shards.push_back(
          {.rank = static_cast<uint32_t>(random_()), .file_bytes = random_(), .index_digest = {Id()}});
      record.references.push_back(
          {.step = info.step / 2, .attempt = {Id()}, .rank = static_cast<uint32_t>(i), .world_size = 7});
    }
    return record;
  }

  size_t Draw(size_t count) { return random_() % count; }

 private:
  std::array<uint8_t, 16> Id() {
    std::array<uint8_t, 16> id;
    for (uint8_t& byte : id) byte = static_cast<uint8_t>(random_());
    return id;
  }
  // Of plain characters, of such as are escaped, and of some beyond ASCII.
  std::string Text() {
    const std::string parts[] = {"loss", "{\"a\": 1}", "\\", "/", "\n\t\r\b\f", "\x01", "\x7f", "ä", "\xff", " "};
    std::string text;
    for (size_t i = Draw(4); i > 0; --i) text += parts[Draw(Draw(3) == 0 ? std::size(parts) : 5)];
    return text;
  }
  Metrics DrawMetrics() {
    Metrics metrics;
    for (size_t i = Draw(4); i > 0; --i) metrics[Text() + std::to_string(i)] = std::bit_cast<double>(random_());
    for (const double value : {0.0, -0.0, 1.0, 1e300, 5e-324, std::numeric_limits<double>::quiet_NaN(),
                               -std::numeric_limits<double>::infinity()}) {
      if (Draw(3) == 0) metrics[fmt::format("m{}", value)] = value;
    }
    return metrics;
  }

  std::mt19937_64 random_;
};

StepRecord PlainRecord() {
  StepRecord record;
  record.info.step = 1000;
  record.info.attempt = "000102030405060708090a0b0c0d0e0f";
  record.info.metrics = {{"loss", 0.5}};
  record.info.user_metadata = R"({"run": "a"})";
  record.info.evaluations = {{.evaluator = "validation", .metrics = {{"loss", 0.25}}}};
  record.shards = {{.rank = 0, .file_bytes = 4096}};
  record.references = {{.step = 900, .attempt = AttemptId{{9}}, .rank = 0, .world_size = 1}};
  return record;
}

TEST(CanonicalRecord, ReadsWhatIsWritten) {
  const std::string bytes = EncodeStepRecord(PlainRecord());
  const auto record = ReadCanonicalStepRecord(bytes);
  ASSERT_TRUE(record.has_value()) << bytes;
  EXPECT_EQ(EncodeStepRecord(*record), bytes);
}

TEST(CanonicalRecord, ReadsTags) {
  StepRecord tagged = PlainRecord();
  tagged.info.pinned = true;
  tagged.info.tags = {"paper", "v1"};
  const std::string bytes = EncodeStepRecord(tagged);
  const auto record = ReadCanonicalStepRecord(bytes);
  ASSERT_TRUE(record.has_value()) << bytes;
  EXPECT_EQ(record->info.tags, tagged.info.tags);
  EXPECT_EQ(EncodeStepRecord(*record), bytes);
}

TEST(CanonicalRecord, LeavesTagsToTheParserThatNobodyCouldHaveGiven) {
  StepRecord tagged = PlainRecord();
  tagged.info.pinned = true;
  tagged.info.tags = {"paper"};
  const std::string good = EncodeStepRecord(tagged);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    EXPECT_NE(bytes.find(from), std::string::npos) << from;
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  for (const std::string& bytes : {with(R"(["paper"])", R"(["the paper"])"), with(R"(["paper"])", R"(["v1","paper"])"),
                                   with(R"(["paper"])", R"(["paper","paper"])"), with(R"(["paper"])", R"("paper")"),
                                   with(R"(["paper"])", R"([1])"), with(R"("pinned":true)", R"("pinned":false)")}) {
    EXPECT_FALSE(ReadCanonicalStepRecord(bytes).has_value()) << bytes;
    EXPECT_THAT(Parse(bytes), StatusIs(absl::StatusCode::kDataLoss, testing::HasSubstr("step record"))) << bytes;
  }
}

TEST(CanonicalRecord, SaysTheSameAsTheParser) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  RecordMaker maker(seed);
  int read = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string bytes = EncodeStepRecord(maker.Make());
    const auto record = ReadCanonicalStepRecord(bytes);
    if (!record) continue;
    ++read;
    const auto parsed = Parse(bytes);
    ASSERT_THAT(parsed, IsOk()) << bytes;
    ASSERT_EQ(EncodeStepRecord(*record), EncodeStepRecord(*parsed)) << bytes;
  }
  EXPECT_GT(read, 50);
}

// A byte is changed, taken out or doubled: whatever is still read is what the parser reads.
TEST(CanonicalRecord, TakesNothingThatTheParserRefuses) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  RecordMaker maker(seed);
  StepRecord tagged = PlainRecord();
  tagged.info.pinned = true;
  tagged.info.tags = {"paper", "v1", "v2"};
  const std::string seeds[] = {EncodeStepRecord(PlainRecord()), EncodeStepRecord(tagged)};
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = seeds[i % 2];
    const size_t place = maker.Draw(bytes.size());
    switch (maker.Draw(3)) {
      case 0:
        bytes[place] = static_cast<char>(maker.Draw(256));
        break;
      case 1:
        bytes.erase(place, 1);
        break;
      default:
        bytes.insert(place, 1, bytes[place]);
    }
    const auto record = ReadCanonicalStepRecord(bytes);
    if (!record) continue;
    ++read;
    const auto parsed = Parse(bytes);
    ASSERT_THAT(parsed, IsOk()) << bytes;
    ASSERT_EQ(EncodeStepRecord(*record), EncodeStepRecord(*parsed)) << bytes;
  }
  EXPECT_GT(read, 100);
}

TEST(CanonicalRecord, LeavesEverythingUnusualToTheParser) {
  const std::string good = EncodeStepRecord(PlainRecord());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    EXPECT_NE(bytes.find(from), std::string::npos) << from;
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  for (const std::string& bytes : {std::string(),
                                   good + " ",
                                   good.substr(0, good.size() - 1),
                                   with(R"("step":1000)", R"("step":01000)"),
                                   with(R"("step":1000)", R"("step":-1000)"),
                                   with(R"("step":1000)", R"("step":1e3)"),
                                   with(R"("step":1000)", R"("step":-)"),
                                   with(R"("step":1000)", R"("step":)"),
                                   with(R"("step":1000)", R"("step":+1000)"),
                                   with(R"("step":1000)", R"("step":1000 )"),
                                   with(R"("sequence":0)", R"("sequence":-0)"),
                                   with(R"("sequence":0)", R"("sequence":18446744073709551616)"),
                                   with(R"("step":1000)", R"("step":9223372036854775808)"),
                                   with(R"("loss":0.5)", R"("loss":1)"),
                                   with(R"("loss":0.5)", R"("loss":00.5)"),
                                   with(R"("loss":0.5)", R"("loss":.5)"),
                                   with(R"("loss":0.5)", R"("loss":0.)"),
                                   with(R"("loss":0.5)", R"("loss":0.5e)"),
                                   with(R"("loss":0.5)", R"("loss":0.5x)"),
                                   with(R"("loss":0.5)", R"("loss":0.5.5)"),
                                   with(R"("loss":0.5)", R"("loss":-)"),
                                   with(R"("loss":0.5)", R"("loss":)"),
                                   with(R"("loss":0.5)", R"("loss":1e999)"),
                                   with(R"("loss":0.5)", R"("loss":"nan")"),
                                   with(R"("loss":0.5)", R"("loss":0.5,"loss":0.25)"),
                                   with(R"("version":2)", R"("version":3)"),
                                   with(R"("state":"committed")", R"("state":"gone")"),
                                   with(R"("reason":"")", R"("reason":"\u00e4")"),
                                   with(R"("reason":"")", "\"reason\":\"\xff\""),
                                   with(R"("reason":"")", "\"reason\":\"\n\""),
                                   with("000102030405060708090a0b0c0d0e0f", ""),
                                   with(R"("pinned":false)", R"("pinned":0)"),
                                   with(R"("took_ns":0)", R"("took_ns":-1)")}) {
    EXPECT_FALSE(ReadCanonicalStepRecord(bytes).has_value()) << bytes;
  }
}

}  // namespace
}  // namespace tidemark::storage
