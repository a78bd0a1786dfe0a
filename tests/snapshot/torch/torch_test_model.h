// A module with everything that a module can have: parameters of its own and of modules in it, and buffers.

#ifndef TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_TEST_MODEL_H_
#define TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_TEST_MODEL_H_

#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {

struct Block : torch::nn::Module {
  Block()
      : linear(register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(4))) {
    scale = register_parameter("scale", torch::ones({4}));
  }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
  at::Tensor scale;
};

struct Model : torch::nn::Module {
  Model() : first(register_module("first", std::make_shared<Block>())) {}
  std::shared_ptr<Block> first;
};

inline std::vector<std::string> EntryNames(const State& state) {
  std::vector<std::string> names;
  for (const State::Entry& entry : state.entries()) names.push_back(entry.spec.name);
  return names;
}

inline const State::Entry& FindEntry(const State& state, const std::string& name) {
  for (const State::Entry& entry : state.entries()) {
    if (entry.spec.name == name) return entry;
  }
  throw std::out_of_range(name);
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_TEST_MODEL_H_
