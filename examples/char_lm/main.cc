// Trains a small character-level transformer, and can be killed at any moment: started again with the same command
// line, it goes on from the latest committed step, and every loss from there on is bit for bit the one that the
// uninterrupted run would have computed.
//
// Train() is the part to copy. The five steps marked in it are all that checkpointing asks of a trainer. Beside them
// it shows what may hang on the saves: an evaluator behind the training, retention by what it finds, and one last save
// when the job is to end.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "examples/char_lm/model.h"
#include "examples/char_lm/schedule.h"
#include "examples/char_lm/text.h"
#include "examples/char_lm/training_flags.h"
#include "examples/char_lm/training_log.h"
#include "examples/char_lm/validation.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/preemption_guard.h"
#include "tidemark/torch.h"

namespace char_lm {
namespace {

struct Flags : TrainingFlags {
  int threads = 1;  // more of them spin while they wait for one another, which hurts where cores are busy or few
  bool validate = false;
  double evaluator_sleeps = 0;  // seconds
  int64_t keep_latest = 0;
  int64_t keep_best = 0;
  std::vector<std::string> await_evaluators;
  std::string command_line;  // a JSON object, saved with every step
};

// One step of the optimizer on one random batch; returns the loss.
double TrainStep(const Text& text, const Flags& flags, double learning_rate, CharTransformer& model,
                 torch::optim::AdamW& optimizer) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
  const Batch batch = text.Draw(flags.batch, flags.model.context);
  const torch::Tensor logits = model->forward(batch.input);
  const torch::Tensor loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), batch.target.flatten());
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

// Which steps stay: all, unless the flags say otherwise.
tidemark::RetentionOptions Retention(const Flags& flags) {
  tidemark::RetentionOptions retention;
  retention.max_to_keep = flags.keep_latest;
  if (flags.keep_best > 0) retention.keep_best = {{.metric = "validation/loss", .count = flags.keep_best}};
  for (const std::string& name : flags.await_evaluators) {
    retention.keep_unevaluated_until.push_back({.evaluator = name});
  }
  return retention;
}

// Computes the loss on held-out text behind the training, with a model of its own that every snapshot is loaded into.
// Each snapshot's turn comes: past one that waits they are read from the store (kQueue).
absl::Status AddValidation(tidemark::AsyncCheckpointer& checkpointer, const Flags& flags, const ModelConfig& config) {
  absl::StatusOr<Text> text = Text::Read(flags.text, TextPart::kHeldOut, /*length_min=*/config.context + 1);
  if (!text.ok()) return text.status();
  CharTransformer model(config);
  model->eval();
  return checkpointer.AddEvaluator(
      {.name = "validation", .when_lagging = tidemark::WhenLagging::kQueue, .entries = {"model.*"}},
      [model, batches = text->Walk(flags.batch, config.context), sleep = absl::Seconds(flags.evaluator_sleeps)](
          const tidemark::Snapshot& snapshot) mutable -> absl::StatusOr<tidemark::Verdict> {
        at::set_num_threads(1);  // of this thread
        if (absl::Status loaded = tidemark::LoadModule(snapshot, "model", *model); !loaded.ok()) return loaded;
        if (sleep > absl::ZeroDuration()) {
          absl::SleepFor(sleep);
          return tidemark::Metrics{};
        }
        return tidemark::Metrics{{"loss", HeldOutLoss(batches, model)}};
      });
}

absl::Status Train(const Flags& flags) {
  TrainingLog log(flags.quiet);
  if (!flags.loss_log.empty()) {
    if (absl::Status opened = log.OpenLossFile(flags.loss_log); !opened.ok()) return opened;
  }
  absl::StatusOr<Text> text = Text::Read(flags.text, TextPart::kTraining, /*length_min=*/flags.model.context + 1);
  if (!text.ok()) return text.status();

  // The number of threads decides the order in which floating-point sums are taken, and so their last bits.
  at::set_num_threads(flags.threads);
  torch::manual_seed(flags.seed);
  ModelConfig config = flags.model;
  config.vocabulary = static_cast<int64_t>(text->vocabulary().size());
  CharTransformer model(config);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions().weight_decay(0.1));
  const Schedule schedule{.steps = flags.steps};
  std::string vocabulary = text->vocabulary();
  int64_t characters_seen = 0;

  // 1. Open the store: this process is the only one to write there until Close, or until it dies.
  auto checkpointer = tidemark::AsyncCheckpointer::Open({
      .directory = flags.store,
      .save_interval_steps = flags.save_every,
      .save_on_steps = {flags.steps - 1},
      .retention = Retention(flags),
  });
  if (!checkpointer.ok()) return checkpointer.status();

  // 2. Name everything that the next step depends on. The generator belongs to it: it draws the batches and the
  // dropout.
  tidemark::TorchState state;
  state.AddModule("model", *model);
  state.AddOptimizer("optimizer", optimizer, *model);
  state.AddGenerator("rng", at::detail::getDefaultCPUGenerator());
  state.AddValue("vocabulary", &vocabulary);
  state.AddValue("characters_seen", &characters_seen);

  // SIGTERM, as a scheduler sends it: one last save, then the end.
  auto guard = tidemark::PreemptionGuard::Install({});
  if (!guard.ok()) return guard.status();

  // 3. Go on where the last run was stopped: at step 0 in a fresh run. Stop on any error: a training that began anew
  // would bury the steps that the store still has.
  const absl::StatusOr<int64_t> first_step = (*checkpointer)->Resume(state);
  if (!first_step.ok()) return first_step.status();
  if (vocabulary != text->vocabulary()) {
    return absl::FailedPreconditionError(
        fmt::format("{} was trained on a text of other characters than {}", flags.store, flags.text));
  }
  if (flags.validate) {
    // Its model begins with random numbers, which the training must not miss.
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const torch::Tensor before = generator.get_state();
    if (absl::Status added = AddValidation(**checkpointer, flags, config); !added.ok()) return added;
    generator.set_state(before);
  }
  log.Say(fmt::format("{} parameters, {} characters of text; {}", model->ParameterCount(), text->length(),
                      *first_step > 0 ? fmt::format("resuming after step {}", *first_step - 1) : "starting afresh"));

  for (int64_t step = *first_step; step < flags.steps; ++step) {
    const double learning_rate = schedule.LearningRate(step);
    const double loss = TrainStep(*text, flags, learning_rate, model, optimizer);
    const int64_t characters = flags.batch * flags.model.context;
    characters_seen += characters;
    if (absl::Status logged = log.Step(step, loss, learning_rate, characters); !logged.ok()) return logged;

    // 4. Save. The training stands still only while the state is copied; the rest is done behind the next steps. A save
    // that failed there is on standard error, in earlier_failure() of the next save, and in Close.
    if ((*checkpointer)->ShouldSave(step)) {
      const absl::Time before = absl::Now();
      auto save = (*checkpointer)
                      ->Save(step, state,
                             {
                                 .metrics = {{"loss", loss}, {"learning_rate", learning_rate}},
                                 .user_metadata = flags.command_line,
                             });
      if (!save.ok()) return save.status();
      log.Saved(step, absl::Now() - before);
    }

    if ((*guard)->preempted()) {
      const tidemark::PreemptionReport last = (*guard)->SaveAndClose(
          **checkpointer, step, state, {.metrics = {{"loss", loss}}, .user_metadata = flags.command_line});
      log.Say(last.Describe());
      return last.save;
    }
  }
  log.SayPace();

  // 5. Close: waits until the last save is committed, and says whether any of them failed.
  absl::Status closed = (*checkpointer)->Close();
  if (closed.ok()) log.Say("done; every save is committed");
  return closed;
}

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  app.add_option("--threads", flags.threads, "Of the training; losses depend on it in their last bits")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--validate", flags.validate,
               "Compute the loss of every saved step on the held-out tenth of the text, behind the training");
  app.add_option("--evaluator-sleeps", flags.evaluator_sleeps,
                 "With --validate: only sleep for so many seconds, to show that the training does not wait")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--keep-latest", flags.keep_latest, "Delete all but so many of the latest steps; 0: keep all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--keep-best", flags.keep_best, "Keep so many of the best by validation/loss, too")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--await-evaluator", flags.await_evaluators,
                 "Delete no step before the evaluator of this name has seen it; may be given several times");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a small character-level transformer, checkpointed by Tidemark.");
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (const std::string problem = ProblemOf(flags); !problem.empty()) {
    fmt::print(stderr, "char_lm: {}\n", problem);
    return 2;
  }
  // A command line need not be UTF-8, and JSON must be.
  const nlohmann::json metadata = {{"command_line", std::vector<std::string>(argv, argv + argc)}};
  flags.command_line = metadata.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);

  try {
    const absl::Status trained = Train(flags);
    if (trained.ok()) return 0;
    fmt::print(stderr, "char_lm: {}\n", trained.ToString());
  } catch (const std::exception& error) {  // LibTorch's: out of memory, a shape that does not fit
    fmt::print(stderr, "char_lm: {}\n", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace char_lm

int main(int argc, char** argv) { return char_lm::Main(argc, argv); }
