#include "snapshot/checkpointer_options.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "fmt/format.h"
#include "storage/bytes/utf8.h"
#include "storage/io/quoted_name.h"
#include "storage/io/thread_priority.h"
#include "storage/ranks/statements.h"
#include "storage/records/json_fields.h"

namespace tidemark {
namespace {

constexpr size_t kUserMetadataBytesMax = 16 << 20;

// With the mark of UTF-8 and blanks before it, as the parser takes them.
bool IsObjectIfJson(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '{';
}

absl::Status OutOfRange(std::string_view field, auto value, std::string_view range) {
  return absl::InvalidArgumentError(fmt::format("CheckpointerOptions::{} is {}; it must be {}", field, value, range));
}

storage::IoQueueKind QueueKind(IoBackend io) {
  switch (io) {
    case IoBackend::kAuto:
      return storage::IoQueueKind::kAuto;
    case IoBackend::kUring:
      return storage::IoQueueKind::kUring;
    case IoBackend::kThreads:
      return storage::IoQueueKind::kThreads;
  }
  return storage::IoQueueKind::kAuto;
}

storage::CodecPolicy PolicyOf(Compression compression) {
  switch (compression) {
    case Compression::kAuto:
      return storage::CodecPolicy::kAuto;
    case Compression::kThroughput:
      return storage::CodecPolicy::kThroughput;
    case Compression::kSpace:
      return storage::CodecPolicy::kSpace;
    case Compression::kNone:
      return storage::CodecPolicy::kNone;
  }
  return storage::CodecPolicy::kAuto;
}

absl::Status ValidateTuning(const Tuning& tuning) {
  if (tuning.reuse_saves_max < 0) {
    return OutOfRange("tuning.reuse_saves_max", tuning.reuse_saves_max, "0 (no limit) or more");
  }
  const uint32_t chunk = tuning.chunk_bytes;
  if (chunk < storage::kChunkBytesMin || chunk > storage::kChunkBytesMax || (chunk & (chunk - 1)) != 0) {
    return OutOfRange("tuning.chunk_bytes", chunk, "a power of two from 4096 to 67108864");
  }
  if (tuning.codec_threads < 0 || tuning.codec_threads > storage::kCodecThreadsMax) {
    return OutOfRange("tuning.codec_threads", tuning.codec_threads,
                      fmt::format("from 0 (one for each core) to {}", storage::kCodecThreadsMax));
  }
  if (tuning.io_depth < 1 || tuning.io_depth > static_cast<int>(storage::kIoDepthMax)) {
    return OutOfRange("tuning.io_depth", tuning.io_depth, fmt::format("from 1 to {}", storage::kIoDepthMax));
  }
  if (tuning.write_bytes_per_second_max != 0 && tuning.write_bytes_per_second_max < storage::kWriteRateMin) {
    return OutOfRange("tuning.write_bytes_per_second_max", tuning.write_bytes_per_second_max,
                      fmt::format("0 (no cap) or at least {}", storage::kWriteRateMin));
  }
  if (tuning.background_nice < 0 || tuning.background_nice > storage::kNiceMax) {
    return OutOfRange("tuning.background_nice", tuning.background_nice, fmt::format("from 0 to {}", storage::kNiceMax));
  }
  if (tuning.poll_interval <= absl::ZeroDuration()) {
    return OutOfRange("tuning.poll_interval", absl::FormatDuration(tuning.poll_interval), "more than 0");
  }
  return absl::OkStatus();
}

absl::Status ValidateRanks(const RankOptions& ranks) {
  if (ranks.world_size < 1 || ranks.world_size > static_cast<int32_t>(storage::kWorldSizeMax)) {
    return OutOfRange("ranks.world_size", ranks.world_size, fmt::format("from 1 to {}", storage::kWorldSizeMax));
  }
  if (ranks.rank < 0 || ranks.rank >= ranks.world_size) {
    return OutOfRange("ranks.rank", ranks.rank, fmt::format("from 0 to {}", ranks.world_size - 1));
  }
  if (ranks.world_size == 1) return absl::OkStatus();
  if (ranks.all_gather == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("CheckpointerOptions::ranks.all_gather is null, and the job has {} ranks", ranks.world_size));
  }
  if (ranks.vote_timeout <= absl::ZeroDuration() || ranks.vote_timeout == absl::InfiniteDuration()) {
    return OutOfRange("ranks.vote_timeout", absl::FormatDuration(ranks.vote_timeout), "more than 0, and finite");
  }
  if (ranks.outcome_margin <= absl::ZeroDuration() || ranks.outcome_margin == absl::InfiniteDuration()) {
    return OutOfRange("ranks.outcome_margin", absl::FormatDuration(ranks.outcome_margin), "more than 0, and finite");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateOptions(const CheckpointerOptions& options) {
  if (options.directory.empty()) return absl::InvalidArgumentError("CheckpointerOptions::directory is empty");
  if (options.save_interval_steps < 0) return OutOfRange("save_interval_steps", options.save_interval_steps, ">= 0");
  if (!(options.save_interval_seconds >= 0) || std::isinf(options.save_interval_seconds)) {
    return OutOfRange("save_interval_seconds", options.save_interval_seconds, "a number >= 0");
  }
  const auto negative =
      std::find_if(options.save_on_steps.begin(), options.save_on_steps.end(), [](int64_t step) { return step < 0; });
  if (negative != options.save_on_steps.end()) return OutOfRange("save_on_steps", *negative, "steps >= 0");
  if (absl::Status status = ValidateTuning(options.tuning); !status.ok()) return status;
  if (absl::Status status = ValidateRanks(options.ranks); !status.ok()) return status;
  if (options.save_timeout <= absl::ZeroDuration()) {
    return OutOfRange("save_timeout", absl::FormatDuration(options.save_timeout), "more than 0");
  }
  // A rank whose time is up would be told so of a step that the others are told is committed.
  const absl::Duration votes = options.ranks.vote_timeout + options.ranks.outcome_margin;
  if (options.ranks.world_size > 1 && options.save_timeout <= votes) {
    return OutOfRange("save_timeout", absl::FormatDuration(options.save_timeout),
                      fmt::format("more than {}, which is ranks.vote_timeout and ranks.outcome_margin together",
                                  absl::FormatDuration(votes)));
  }
  if (options.close_timeout <= absl::ZeroDuration()) {
    return OutOfRange("close_timeout", absl::FormatDuration(options.close_timeout), "more than 0");
  }
  return ValidateRetention(options.retention);
}

absl::Status ValidateUserMetadata(const std::string& text) {
  if (text.size() > kUserMetadataBytesMax) {
    return absl::InvalidArgumentError(fmt::format("SaveOptions::user_metadata has {} bytes; at most {} are kept",
                                                  text.size(), kUserMetadataBytesMax));
  }
  // Looked at and not kept: of very many small arrays that would take some 40 times the size of the text.
  if (IsObjectIfJson(text) && storage::IsJson(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("SaveOptions::user_metadata is not a JSON object: {}", text.substr(0, 100)));
}

absl::Status ValidateMetrics(std::string_view owner, const std::map<std::string, double>& metrics) {
  for (const auto& [name, value] : metrics) {
    if (name.empty() || name.size() > EntrySpec::kNameBytesMax) {
      return absl::InvalidArgumentError(fmt::format("{}: the name {} has {} bytes; it must have 1 to {}", owner,
                                                    storage::QuotedName(name), name.size(), EntrySpec::kNameBytesMax));
    }
    if (!storage::IsUtf8(name)) {
      return absl::InvalidArgumentError(fmt::format("{}: the name {} is not UTF-8", owner, storage::QuotedName(name)));
    }
  }
  return absl::OkStatus();
}

int CodecThreads(const Tuning& tuning) {
  if (tuning.codec_threads > 0) return tuning.codec_threads;
  return std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, storage::kCodecThreadsMax);
}

storage::ShardWriterOptions WriterOptions(const CheckpointerOptions& options) {
  const Tuning& tuning = options.tuning;
  return {.policy = PolicyOf(options.compression),
          .chunk_bytes = tuning.chunk_bytes,
          .codec_threads = CodecThreads(tuning),
          .io = QueueKind(tuning.io),
          .io_depth = static_cast<size_t>(tuning.io_depth),
          .bytes_per_second_max = tuning.write_bytes_per_second_max,
          .nice = tuning.background_nice,
          .idle_io = tuning.background_io_idle,
          .reuse_saves_max = static_cast<uint64_t>(tuning.reuse_saves_max)};
}

absl::Duration CompressionMax(const CheckpointerOptions& options) {
  absl::Duration longest = options.save_timeout;
  if (options.ranks.world_size > 1) longest = std::min(longest, options.ranks.vote_timeout);
  return longest / 4;
}

storage::ShardReadOptions ReadOptions(const Tuning& tuning) {
  return {.codec_threads = CodecThreads(tuning),
          .io = QueueKind(tuning.io),
          .io_depth = static_cast<size_t>(tuning.io_depth)};
}

}  // namespace tidemark
