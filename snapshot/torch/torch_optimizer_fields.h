// The fields of LibTorch's optimizers: what each keeps for a parameter, and its options. Thread-safe.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_OPTIMIZER_FIELDS_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_OPTIMIZER_FIELDS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ATen/core/Tensor.h"
#include "torch/optim/optimizer.h"

namespace tidemark {

// Sees, and may set, every field of a state or of options in a fixed order.
class FieldVisitor {
 public:
  enum class Need {
    kAlways,    // the optimizer cannot step without it
    kSometimes  // depends on the options: amsgrad, momentum, centered
  };
  // How the tensor relates to the parameters it is for.
  enum class Form {
    kParameter,  // same shape and dtype
    kFlat,       // all parameters, one after the other
    kNumber,     // shape []
  };

  virtual ~FieldVisitor() = default;
  virtual void Int64(std::string_view field, int64_t& value) = 0;
  virtual void Double(std::string_view field, double& value) = 0;
  virtual void Bool(std::string_view field, bool& value) = 0;
  virtual void Text(std::string_view field, std::string& value) = 0;
  virtual void Tensor(std::string_view field, Need need, Form form, at::Tensor& tensor) = 0;
  virtual void Tensors(std::string_view field, Form form, std::deque<at::Tensor>& tensors) = 0;
};

struct OptimizerKind {
  std::string_view type;
  // One state for all parameters, kept under the first: LBFGS.
  bool one_state;
  // The states are made with the optimizer and must always be there: Adagrad.
  bool state_from_start;
  bool (*is)(const torch::optim::Optimizer& optimizer);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  std::unique_ptr<torch::optim::OptimizerOptions> (*make_options)();
  void (*visit_state)(torch::optim::OptimizerParamState& state, FieldVisitor& visitor);
  void (*visit_options)(torch::optim::OptimizerOptions& options, FieldVisitor& visitor);
};

std::span<const OptimizerKind> OptimizerKinds();

// Null for an optimizer that is none of them.
const OptimizerKind* FindOptimizerKind(const torch::optim::Optimizer& optimizer);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_OPTIMIZER_FIELDS_H_
