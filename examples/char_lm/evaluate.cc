// Follows the checkpoints of char_lm, in a process of its own, and computes each step's loss on the part of the text
// that is held out. What it finds goes back into the store: checkpoint-inspect shows it, and a trainer's retention can
// keep the steps by it.
//
// Evaluate() is the part to copy. It may be killed and started again at any moment, and any number of them may run at
// once: every step is evaluated, and counts once.

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "examples/char_lm/model.h"
#include "examples/char_lm/model_flags.h"
#include "examples/char_lm/text.h"
#include "examples/char_lm/validation.h"
#include "tidemark/torch.h"
#include "tidemark/worker.h"

namespace char_lm {
namespace {

struct Flags {
  std::string store;
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::string name = "validation";
  int64_t every_steps = 1;
  int64_t begin_step = 0;
  std::optional<int64_t> until_step;
  std::optional<double> idle_timeout;  // in seconds; none: for ever
  bool once = false;
  bool again_if_failed = false;
  int threads = 1;
  int64_t batch = 32;
  ModelConfig model;
};

class PrintEvaluations final : public tidemark::CheckpointObserver {
 public:
  void Evaluated(int64_t step, const tidemark::Evaluation& row) override {
    if (row.outcome == tidemark::Evaluation::Outcome::kDone) {
      fmt::print("step {}: held-out loss {:.4f}, {:.2f} s\n", step, row.metrics.at("loss"),
                 absl::ToDoubleSeconds(row.took));
    } else {
      // All of the reason is in the store; checkpoint-inspect shows it.
      fmt::print("step {}: {}: {}\n", step, tidemark::OutcomeName(row.outcome),
                 row.reason.substr(0, row.reason.find('\n')));
    }
    std::fflush(stdout);
  }
};

absl::StatusOr<tidemark::WorkerReport> Evaluate(const Flags& flags) {
  absl::StatusOr<Text> text = Text::Read(flags.text, TextPart::kHeldOut, /*length_min=*/flags.model.context + 1);
  if (!text.ok()) return text.status();
  at::set_num_threads(flags.threads);
  const std::vector<Batch> batches = text->Walk(flags.batch, flags.model.context);
  ModelConfig config = flags.model;
  config.vocabulary = static_cast<int64_t>(text->vocabulary().size());
  CharTransformer model(config);
  model->eval();

  tidemark::WorkerOptions options{
      .directory = flags.store,
      .evaluator = flags.name,
      .entries = {"model.*"},  // nothing else is read
      .every_steps = flags.every_steps,
      .begin_step = flags.begin_step,
      .again_if_failed = flags.again_if_failed,
      .until_step = flags.until_step,
      .observer = std::make_shared<PrintEvaluations>(),
  };
  if (flags.idle_timeout) options.idle_timeout = absl::Seconds(*flags.idle_timeout);
  if (flags.once) options.idle_timeout = absl::ZeroDuration();
  return tidemark::FollowStore(options, [&](const tidemark::Snapshot& snapshot) -> absl::StatusOr<tidemark::Verdict> {
    if (absl::Status loaded = tidemark::LoadModule(snapshot, "model", *model); !loaded.ok()) return loaded;
    return tidemark::Metrics{{"loss", HeldOutLoss(batches, model)}};
  });
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--store", flags.store, "Folder of the checkpoints; waited for if it is not there")->required();
  app.add_option("--text", flags.text, "The text that char_lm learns; its last tenth is held out")
      ->capture_default_str();
  app.add_option("--name", flags.name,
                 "Of this evaluation: the metric is known as NAME/loss. Processes of the same name share the steps")
      ->capture_default_str();
  app.add_option("--every-steps", flags.every_steps, "Evaluate only steps divisible by it")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--begin-step", flags.begin_step, "Evaluate no step before it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--until-step", flags.until_step, "End when this step or a later one is evaluated");
  app.add_option("--idle-timeout", flags.idle_timeout, "End when there has been nothing to do for so many seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--once", flags.once, "End when what is there now is evaluated");
  app.add_flag("--again-if-failed", flags.again_if_failed, "Evaluate also the steps whose evaluation failed, once");
  app.add_option("--threads", flags.threads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", flags.batch, "Windows of text at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddModelFlags(app, flags.model);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Evaluates the checkpoints of char_lm on the last tenth of its text, beside the training or after it. Ends at "
      "SIGTERM or SIGINT after the step at hand. The exit status is 1 if an evaluation failed.");
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (flags.model.width % flags.model.heads != 0) {
    fmt::print(stderr, "char_lm_evaluate: --width {} is no multiple of --heads {}\n", flags.model.width,
               flags.model.heads);
    return 2;
  }
  try {
    const absl::StatusOr<tidemark::WorkerReport> done = Evaluate(flags);
    if (done.ok() && done->failed == 0) return 0;
    if (done.ok()) {
      fmt::print(stderr, "char_lm_evaluate: {} of {} evaluations failed\n", done->failed, done->evaluated);
    } else {
      fmt::print(stderr, "char_lm_evaluate: {}\n", done.status().ToString());
    }
  } catch (const std::exception& error) {  // LibTorch's: out of memory
    fmt::print(stderr, "char_lm_evaluate: {}\n", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace char_lm

int main(int argc, char** argv) { return char_lm::Main(argc, argv); }
