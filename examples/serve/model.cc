// Continues a text with the model of char_lm, beside its training or after it: an inference process, which takes no
// lock of the store.
//
// LoadStep() is the part to copy: it fills a LibTorch module from a step of the store.

#include "examples/char_lm/model.h"
#include "examples/char_lm/model_flags.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/snapshot.h"
#include "tidemark/step_selector.h"
#include "tidemark/store_reader.h"
#include "tidemark/torch.h"

namespace char_lm {
namespace {

struct Flags {
  std::string store;
  std::string step = "best:validation/loss";
  std::string prompt = "The ";
  int64_t characters = 60;
  ModelConfig model;
};

struct Loaded {
  int64_t step = 0;
  std::string vocabulary;
  CharTransformer model{nullptr};
};

absl::StatusOr<Loaded> LoadStep(const Flags& flags) {
  const absl::StatusOr<tidemark::StepSelector> selector = tidemark::StepSelector::Parse(flags.step);
  if (!selector.ok()) return selector.status();
  const absl::StatusOr<std::unique_ptr<tidemark::StoreReader>> reader = tidemark::StoreReader::Open(flags.store);
  if (!reader.ok()) return reader.status();
  const auto snapshot = (*reader)->Load(*selector, {"model.*", "vocabulary"});  // nothing else is read
  if (!snapshot.ok()) return snapshot.status();
  const std::span<const std::byte> vocabulary = (*snapshot)->bytes(*(*snapshot)->Find("vocabulary"));
  Loaded loaded{.step = (*snapshot)->step(),
                .vocabulary = std::string(reinterpret_cast<const char*>(vocabulary.data()), vocabulary.size())};
  ModelConfig config = flags.model;
  config.vocabulary = static_cast<int64_t>(loaded.vocabulary.size());
  loaded.model = CharTransformer(config);
  loaded.model->eval();
  if (absl::Status status = tidemark::LoadModule(**snapshot, "model", *loaded.model); !status.ok()) return status;
  return loaded;
}

// The prompt and the characters after it that the model holds for the most likely, one by one.
absl::StatusOr<std::string> Continue(const Flags& flags, Loaded& loaded) {
  const torch::NoGradGuard no_gradients;
  std::vector<int64_t> text;
  for (const char character : flags.prompt) {
    const size_t number = loaded.vocabulary.find(character);
    if (number == std::string::npos) {
      return absl::InvalidArgumentError(fmt::format("the model knows no '{}'", character));
    }
    text.push_back(static_cast<int64_t>(number));
  }
  std::string continued = flags.prompt;
  for (int64_t i = 0; i < flags.characters; ++i) {
    const torch::Tensor all = torch::tensor(text).unsqueeze(0);
    const torch::Tensor logits = loaded.model->forward(all.slice(1, -flags.model.context));
    text.push_back(logits[0][-1].argmax().item<int64_t>());
    continued += loaded.vocabulary[static_cast<size_t>(text.back())];
  }
  return continued;
}

absl::Status Serve(const Flags& flags) {
  at::set_num_threads(1);
  absl::StatusOr<Loaded> loaded = LoadStep(flags);
  if (!loaded.ok()) return loaded.status();
  const absl::StatusOr<std::string> text = Continue(flags, *loaded);
  if (!text.ok()) return text.status();
  fmt::print("step {}\n{}\n", loaded->step, *text);
  return absl::OkStatus();
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--store", flags.store, "Folder of the checkpoints of char_lm")->required();
  app.add_option("--step", flags.step, "A step, latest, latest-healthy, best:METRIC or tag:NAME")
      ->capture_default_str();
  app.add_option("--prompt", flags.prompt, "The text to continue")->capture_default_str();
  app.add_option("--characters", flags.characters, "How many characters to add")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  AddModelFlags(app, flags.model);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Continues a text with the model of a step of char_lm, beside the training or after it.");
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (flags.model.width % flags.model.heads != 0 || flags.prompt.empty()) {
    fmt::print(stderr, "serve_model: --width must be a multiple of --heads, and --prompt must not be empty\n");
    return 2;
  }
  try {
    const absl::Status served = Serve(flags);
    if (served.ok()) return 0;
    fmt::print(stderr, "serve_model: {}\n", served.ToString());
  } catch (const std::exception& error) {  // LibTorch's: out of memory
    fmt::print(stderr, "serve_model: {}\n", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace char_lm

int main(int argc, char** argv) { return char_lm::Main(argc, argv); }
