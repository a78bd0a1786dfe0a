// The flags that say how large the model of a checkpoint is, for programs that read what char_lm has saved.

#ifndef TIDEMARK_EXAMPLES_CHAR_LM_MODEL_FLAGS_H_
#define TIDEMARK_EXAMPLES_CHAR_LM_MODEL_FLAGS_H_

#include <CLI/CLI.hpp>

#include "examples/char_lm/model.h"

namespace char_lm {

// `model` must live as long as `app`.
inline void AddModelFlags(CLI::App& app, ModelConfig& model) {
  app.add_option("--context", model.context, "As of char_lm, like the following")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layers", model.layers)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--heads", model.heads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--width", model.width)->check(CLI::PositiveNumber)->capture_default_str();
}

}  // namespace char_lm

#endif  // TIDEMARK_EXAMPLES_CHAR_LM_MODEL_FLAGS_H_
