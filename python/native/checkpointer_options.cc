#include "python/native/checkpointer_options.h"

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/tuple.h"
#include "nanobind/stl/vector.h"
#include "python/native/options_dict.h"
#include "python/native/python_functions.h"
#include "python/native/status_error.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

// Name of a metric, mode ("" for none), count, whether steps without it stay, function or None.
using KeepBestTuple = std::tuple<std::string, std::string, int64_t, bool, nb::object>;

WhenFull WhenFullOf(const std::string& when_full) {
  if (when_full == "block") return WhenFull::kBlock;
  if (when_full == "skip") return WhenFull::kSkip;
  if (when_full == "fail") return WhenFull::kFail;
  Raise(absl::InvalidArgumentError("when_full is '" + when_full + "', not 'block', 'skip' or 'fail'"));
}

Compression CompressionOf(const std::string& compression) {
  if (compression == "auto") return Compression::kAuto;
  if (compression == "throughput") return Compression::kThroughput;
  if (compression == "space") return Compression::kSpace;
  if (compression == "none") return Compression::kNone;
  Raise(
      absl::InvalidArgumentError("compression is '" + compression + "', not 'auto', 'throughput', 'space' or 'none'"));
}

IoBackend IoOf(const std::string& io) {
  if (io == "auto") return IoBackend::kAuto;
  if (io == "uring") return IoBackend::kUring;
  if (io == "threads") return IoBackend::kThreads;
  Raise(absl::InvalidArgumentError("io is '" + io + "', not 'auto', 'uring' or 'threads'"));
}

Tuning TuningOf(const nb::dict& options) {
  return {.chunk_bytes = Option<uint32_t>(options, "chunk_bytes"),
          .codec_threads = Option<int>(options, "codec_threads"),
          .io = IoOf(Option<std::string>(options, "io")),
          .io_depth = Option<int>(options, "io_depth"),
          .write_bytes_per_second_max = Option<uint64_t>(options, "write_bytes_per_second_max"),
          .background_nice = Option<int>(options, "background_nice"),
          .background_io_idle = Option<bool>(options, "background_io_idle"),
          .reuse_saves_max = Option<int64_t>(options, "reuse_saves_max"),
          .scrub_bytes_per_second_max = Option<uint64_t>(options, "scrub_bytes_per_second_max"),
          .device_staging_bytes_max = Option<uint64_t>(options, "device_staging_bytes_max"),
          .check_overlapped_saves = Option<bool>(options, "check_overlapped_saves"),
          .poll_interval = absl::Seconds(Option<double>(options, "poll_interval"))};
}

}  // namespace

Staging StagingOf(const std::string& staging) {
  if (staging == "blocking") return Staging::kBlocking;
  if (staging == "overlapped") return Staging::kOverlapped;
  if (staging == "on_device") return Staging::kOnDevice;
  Raise(absl::InvalidArgumentError("staging is '" + staging + "', not 'blocking', 'overlapped' or 'on_device'"));
}

RankOptions RankOptionsOf(const nb::object& ranks) {
  if (ranks.is_none()) return {};
  const auto options = nb::cast<nb::dict>(ranks);
  const auto world_size = Option<int32_t>(options, "world_size");
  return {.rank = Option<int32_t>(options, "rank"),
          .world_size = world_size,
          .all_gather = AllGatherOf(options["all_gather"], world_size),
          .replicated = Option<std::vector<std::string>>(options, "replicated"),
          .vote_timeout = absl::Seconds(Option<double>(options, "vote_timeout")),
          .outcome_margin = absl::Seconds(Option<double>(options, "outcome_margin"))};
}

CheckpointerOptions OptionsOf(const nb::dict& options, std::shared_ptr<EventQueue> events) {
  const auto number = [&](const char* name) { return Option<int64_t>(options, name); };
  const auto real = [&](const char* name) { return Option<double>(options, name); };
  const auto text = [&](const char* name) { return Option<std::string>(options, name); };
  const auto flag = [&](const char* name) { return Option<bool>(options, name); };
  CheckpointerOptions out;
  out.directory = text("directory");
  out.create = flag("create");
  out.ranks = RankOptionsOf(options["ranks"]);
  out.save_interval_steps = number("save_interval_steps");
  out.save_on_steps = Option<std::vector<int64_t>>(options, "save_on_steps");
  out.save_interval_seconds = real("save_interval_seconds");
  out.staging_bytes_max = Option<uint64_t>(options, "staging_bytes_max");
  out.when_full = WhenFullOf(text("when_full"));
  out.staging = StagingOf(text("staging"));
  out.compression = CompressionOf(text("compression"));
  out.reuse = flag("reuse");
  out.save_timeout = absl::Seconds(real("save_timeout"));
  out.close_timeout = absl::Seconds(real("close_timeout"));
  out.metrics_file = text("metrics_file");
  out.retention.max_to_keep = number("max_to_keep");
  out.retention.keep_every_steps = number("keep_every_steps");
  out.retention.keep_interval = absl::Seconds(real("keep_interval"));
  out.retention.keep_for = absl::Seconds(real("keep_for"));
  for (const auto& [metric, mode, count, without, score] : Option<std::vector<KeepBestTuple>>(options, "keep_best")) {
    out.retention.keep_best.push_back({.metric = metric,
                                       .mode = ModeOf(mode),
                                       .count = count,
                                       .score = ScoreOf(score),
                                       .keep_without_metric = without});
  }
  out.retention.keep = StepPredicateOf(options["keep"]);
  out.save_when = SaveRuleOf(options["save_when"]);
  for (const auto& [evaluator, steps] :
       Option<std::vector<std::pair<std::string, int64_t>>>(options, "keep_unevaluated_until")) {
    out.retention.keep_unevaluated_until.push_back({.evaluator = evaluator, .every_steps = steps});
  }
  out.tuning = TuningOf(options);
  out.observer = std::move(events);
  return out;
}

AverageOptions AverageOptionsOf(const nb::dict& options) {
  AverageOptions out{.name = Option<std::string>(options, "name"),
                     .entries = Option<std::vector<std::string>>(options, "entries"),
                     .decay = Option<double>(options, "decay"),
                     .begin_step = Option<int64_t>(options, "begin_step"),
                     .every_steps = Option<int64_t>(options, "every_steps")};
  if (!options["adaptive"].is_none()) {
    const auto adaptive = Option<nb::dict>(options, "adaptive");
    out.adaptive = {.metric = Option<std::string>(adaptive, "metric"),
                    .window = Option<int64_t>(adaptive, "window"),
                    .every_steps_min = Option<int64_t>(adaptive, "every_steps_min"),
                    .every_steps_max = Option<int64_t>(adaptive, "every_steps_max"),
                    .noise_max = Option<double>(adaptive, "noise_max")};
  }
  const auto kind = Option<std::string>(options, "kind");
  if (kind == "uniform") {
    out.kind = AverageOptions::Kind::kUniform;
  } else if (kind != "exponential") {
    Raise(absl::InvalidArgumentError("kind is '" + kind + "', not 'exponential' or 'uniform'"));
  }
  return out;
}

RestoreOptions RestoreOptionsOf(const nb::dict& options) {
  return {.healthy_only = Option<bool>(options, "healthy_only"),
          .evaluations_timeout = absl::Seconds(Option<double>(options, "evaluations_timeout")),
          .accept = StepPredicateOf(options["accept"]),
          .only = Option<std::vector<std::string>>(options, "only"),
          .renames = Option<Renames>(options, "renames"),
          .allow_missing = Option<bool>(options, "allow_missing"),
          .allow_unexpected = Option<bool>(options, "allow_unexpected"),
          .progress = ProgressFunctionOf(options["progress"])};
}

}  // namespace tidemark::python
