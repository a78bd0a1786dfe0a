// Saves a module and its optimizer, and restores them into fresh ones.

#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include <cstdio>

#include "tidemark/async_checkpointer.h"
#include "tidemark/torch.h"

namespace {

int Fail(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  return 1;
}

struct Training {
  torch::nn::Linear model{8, 4};
  torch::optim::AdamW optimizer{model->parameters(), torch::optim::AdamWOptions(0.1)};
  tidemark::TorchState state;

  Training() {
    state.AddModule("model", *model);
    state.AddOptimizer("optimizer", optimizer, *model);
  }
  void Step() {
    optimizer.zero_grad();
    model->forward(torch::ones({2, 8})).square().sum().backward();
    optimizer.step();
  }
};

}  // namespace

int main(int, char** argv) {
  auto checkpointer = tidemark::AsyncCheckpointer::Open({.directory = argv[1]});
  if (!checkpointer.ok()) return Fail("open", checkpointer.status());
  Training saved;
  saved.Step();
  auto save = (*checkpointer)->Save(1, saved.state);
  if (!save.ok()) return Fail("save", save.status());
  saved.Step();

  Training resumed;
  auto restored = (*checkpointer)->RestoreLatest(resumed.state);
  if (!restored.ok()) return Fail("restore", restored.status());
  resumed.Step();
  if (!resumed.model->weight.equal(saved.model->weight)) return Fail("compare", absl::DataLossError("other"));
  if (absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return Fail("close", closed);
  std::printf("restored step %d\n", static_cast<int>(restored->step));
  return 0;
}
