// The flags that char_lm and char_lm_ranks have in common.

#ifndef TIDEMARK_EXAMPLES_CHAR_LM_TRAINING_FLAGS_H_
#define TIDEMARK_EXAMPLES_CHAR_LM_TRAINING_FLAGS_H_

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "examples/char_lm/model.h"

namespace char_lm {

struct TrainingFlags {
  std::string store;
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::string loss_log;
  int64_t steps = 400;
  int64_t save_every = 20;
  uint64_t seed = 1;
  bool quiet = false;
  int64_t batch = 8;
  ModelConfig model;
};

// `flags` must live as long as `app`.
inline void AddTrainingFlags(CLI::App& app, TrainingFlags& flags) {
  app.add_option("--store", flags.store, "Folder of the checkpoints; made if it is not there")->required();
  app.add_option("--text", flags.text,
                 "What to learn: any file; a character is a byte. Its last tenth is left to char_lm_evaluate")
      ->capture_default_str();
  app.add_option("--loss-log", flags.loss_log, "Append each step's exact loss to this file");
  app.add_option("--steps", flags.steps, "Length of the whole run, resumed or not")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--save-every", flags.save_every, "Steps between saves; 0: only after the last step")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Of a fresh run")->capture_default_str();
  app.add_flag("--quiet", flags.quiet, "Print errors only");
  app.add_option("--batch", flags.batch, "Windows of text in a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--context", flags.model.context, "Characters in a window")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layers", flags.model.layers)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--heads", flags.model.heads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--width", flags.model.width, "A multiple of --heads")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dropout", flags.model.dropout)->check(CLI::Range(0.0, 1.0))->capture_default_str();
}

// What is wrong with the flags together; empty: nothing.
inline std::string ProblemOf(const TrainingFlags& flags) {
  if (flags.model.width % flags.model.heads == 0) return "";
  return fmt::format("--width {} is no multiple of --heads {}", flags.model.width, flags.model.heads);
}

}  // namespace char_lm

#endif  // TIDEMARK_EXAMPLES_CHAR_LM_TRAINING_FLAGS_H_
