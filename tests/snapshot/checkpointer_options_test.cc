#include "snapshot/checkpointer_options.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

CheckpointerOptions Valid() { return {.directory = "x"}; }

void ExpectRefused(const CheckpointerOptions& options, std::string_view field, std::string_view range) {
  EXPECT_THAT(ValidateOptions(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                                 AllOf(HasSubstr(std::string(field)), HasSubstr(std::string(range)))));
}

TEST(CheckpointerOptions, OfADirectoryAloneAreValid) { EXPECT_THAT(ValidateOptions(Valid()), IsOk()); }

TEST(CheckpointerOptions, NameTheFieldAndTheLegalRange) {
  CheckpointerOptions options;
  ExpectRefused(options, "directory", "empty");
  (options = Valid()).save_interval_steps = -1;
  ExpectRefused(options, "save_interval_steps is -1", ">= 0");
  (options = Valid()).save_interval_seconds = std::nan("");
  ExpectRefused(options, "save_interval_seconds is nan", ">= 0");
  (options = Valid()).save_interval_seconds = -1;
  ExpectRefused(options, "save_interval_seconds", ">= 0");
  (options = Valid()).save_on_steps = {3, -7};
  ExpectRefused(options, "save_on_steps is -7", ">= 0");
  for (uint32_t bytes : {0u, 2048u, 5000u, 128u << 20}) {
    (options = Valid()).tuning.chunk_bytes = bytes;
    ExpectRefused(options, "chunk_bytes is " + std::to_string(bytes), "from 4096 to 67108864");
  }
  for (int threads : {-1, 257}) {
    (options = Valid()).tuning.codec_threads = threads;
    ExpectRefused(options, "codec_threads", "to 256");
  }
  for (int depth : {0, 257}) {
    (options = Valid()).tuning.io_depth = depth;
    ExpectRefused(options, "io_depth", "from 1 to 256");
  }
  (options = Valid()).tuning.reuse_saves_max = -1;
  ExpectRefused(options, "reuse_saves_max is -1", "0 (no limit) or more");
  (options = Valid()).tuning.write_bytes_per_second_max = 1000;
  ExpectRefused(options, "write_bytes_per_second_max is 1000", "0 (no cap) or at least 1048576");
  for (int nice : {-1, 20}) {
    (options = Valid()).tuning.background_nice = nice;
    ExpectRefused(options, "background_nice", "from 0 to 19");
  }
  for (absl::Duration wait : {absl::ZeroDuration(), -absl::Seconds(1)}) {
    (options = Valid()).tuning.poll_interval = wait;
    ExpectRefused(options, "poll_interval is " + absl::FormatDuration(wait), "more than 0");
    (options = Valid()).save_timeout = wait;
    ExpectRefused(options, "save_timeout is " + absl::FormatDuration(wait), "more than 0");
    (options = Valid()).close_timeout = wait;
    ExpectRefused(options, "close_timeout is " + absl::FormatDuration(wait), "more than 0");
  }
  (options = Valid()).retention.max_to_keep = -1;
  ExpectRefused(options, "max_to_keep", "-1");
}

TEST(UserMetadata, MustBeAJsonObjectOfBoundedSize) {
  EXPECT_THAT(ValidateUserMetadata(R"({"a": [1, 2]})"), IsOk());
  EXPECT_THAT(ValidateUserMetadata("\xef\xbb\xbf \t\r\n{}\n"), IsOk());
  for (const char* text : {"", " ", "[1]", "[{}]", "3", "{", "{\"a\": nan}", "{} {}", "{\"a\": \"\xff\"}"}) {
    EXPECT_THAT(ValidateUserMetadata(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a JSON object")));
  }
  const std::string huge = "{\"a\": \"" + std::string(17 << 20, 'x') + "\"}";
  EXPECT_THAT(ValidateUserMetadata(huge), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 16777216")));
}

TEST(Metrics, MustHaveNamesOfBoundedLengthThatAreUtf8) {
  constexpr char kOwner[] = "SaveOptions::metrics";
  EXPECT_THAT(ValidateMetrics(kOwner, {{"a", 0.0}, {"loss \xfe", 0.0}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "SaveOptions::metrics: the name 'loss \\xfe' is not UTF-8"));
  EXPECT_THAT(ValidateMetrics(kOwner, {{"loss", std::nan("")}}), IsOk());
  EXPECT_THAT(ValidateMetrics(kOwner, {{"", 0.0}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "SaveOptions::metrics: the name '' has 0 bytes; it must have 1 to 4096"));
  EXPECT_THAT(ValidateMetrics(kOwner, {{std::string(5000, 'x'), 0.0}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "SaveOptions::metrics: the name '" + std::string(64, 'x') +
                                                               "...' has 5000 bytes; it must have 1 to 4096"));
}

TEST(CodecThreads, AreOneForEachCoreUnlessAsked) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_EQ(CodecThreads(Valid().tuning), std::clamp(cores, 1, storage::kCodecThreadsMax));
  CheckpointerOptions options = Valid();
  options.tuning.codec_threads = 7;
  EXPECT_EQ(CodecThreads(options.tuning), 7);
}

TEST(WriterOptions, CarryEveryKnob) {
  CheckpointerOptions options = Valid();
  options.compression = Compression::kNone;
  options.tuning.chunk_bytes = 8192;
  options.tuning.codec_threads = 3;
  options.tuning.io = IoBackend::kThreads;
  options.tuning.io_depth = 5;
  options.tuning.write_bytes_per_second_max = 7 << 20;
  options.tuning.background_nice = 11;
  options.tuning.background_io_idle = true;
  options.tuning.reuse_saves_max = 13;
  const storage::ShardWriterOptions writer = WriterOptions(options);
  EXPECT_EQ(writer.policy, storage::CodecPolicy::kNone);
  EXPECT_EQ(writer.chunk_bytes, 8192u);
  EXPECT_EQ(writer.codec_threads, 3);
  EXPECT_EQ(writer.io, storage::IoQueueKind::kThreads);
  EXPECT_EQ(writer.io_depth, 5u);
  EXPECT_EQ(writer.bytes_per_second_max, uint64_t{7} << 20);
  EXPECT_EQ(writer.nice, 11);
  EXPECT_TRUE(writer.idle_io);
  EXPECT_EQ(writer.reuse_saves_max, 13u);
  const storage::ShardReadOptions reader = ReadOptions(options.tuning);
  EXPECT_EQ(reader.codec_threads, 3);
  EXPECT_EQ(reader.io, storage::IoQueueKind::kThreads);
  EXPECT_EQ(reader.io_depth, 5u);
}

}  // namespace
}  // namespace tidemark
