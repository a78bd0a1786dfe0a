#include "snapshot/torch/torch_optimizer_fields.h"

#include <tuple>
#include <utility>

#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/lbfgs.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"

namespace tidemark {
namespace {

using torch::optim::AdagradOptions;
using torch::optim::AdagradParamState;
using torch::optim::LBFGSOptions;
using torch::optim::LBFGSParamState;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;
using torch::optim::RMSpropOptions;
using torch::optim::RMSpropParamState;
using torch::optim::SGDOptions;
using torch::optim::SGDParamState;
using Need = FieldVisitor::Need;
using Form = FieldVisitor::Form;

void Visit(SGDParamState& state, FieldVisitor& visitor) {
  visitor.Tensor("momentum_buffer", Need::kSometimes, Form::kParameter, state.momentum_buffer());
}

void Visit(SGDOptions& options, FieldVisitor& visitor) {
  visitor.Double("lr", options.lr());
  visitor.Double("momentum", options.momentum());
  visitor.Double("dampening", options.dampening());
  visitor.Double("weight_decay", options.weight_decay());
  visitor.Bool("nesterov", options.nesterov());
}

// Adam and AdamW.
template <typename State>
auto Visit(State& state, FieldVisitor& visitor) -> decltype(void(state.max_exp_avg_sq())) {
  visitor.Int64("step", state.step());
  visitor.Tensor("exp_avg", Need::kAlways, Form::kParameter, state.exp_avg());
  visitor.Tensor("exp_avg_sq", Need::kAlways, Form::kParameter, state.exp_avg_sq());
  visitor.Tensor("max_exp_avg_sq", Need::kSometimes, Form::kParameter, state.max_exp_avg_sq());
}

template <typename Options>
auto Visit(Options& options, FieldVisitor& visitor) -> decltype(void(options.amsgrad())) {
  visitor.Double("lr", options.lr());
  visitor.Double("betas.0", std::get<0>(options.betas()));
  visitor.Double("betas.1", std::get<1>(options.betas()));
  visitor.Double("eps", options.eps());
  visitor.Double("weight_decay", options.weight_decay());
  visitor.Bool("amsgrad", options.amsgrad());
}

void Visit(RMSpropParamState& state, FieldVisitor& visitor) {
  visitor.Int64("step", state.step());
  visitor.Tensor("square_avg", Need::kAlways, Form::kParameter, state.square_avg());
  visitor.Tensor("momentum_buffer", Need::kSometimes, Form::kParameter, state.momentum_buffer());
  visitor.Tensor("grad_avg", Need::kSometimes, Form::kParameter, state.grad_avg());
}

void Visit(RMSpropOptions& options, FieldVisitor& visitor) {
  visitor.Double("lr", options.lr());
  visitor.Double("alpha", options.alpha());
  visitor.Double("eps", options.eps());
  visitor.Double("weight_decay", options.weight_decay());
  visitor.Double("momentum", options.momentum());
  visitor.Bool("centered", options.centered());
}

void Visit(AdagradParamState& state, FieldVisitor& visitor) {
  visitor.Int64("step", state.step());
  visitor.Tensor("sum", Need::kAlways, Form::kParameter, state.sum());
}

void Visit(AdagradOptions& options, FieldVisitor& visitor) {
  visitor.Double("lr", options.lr());
  visitor.Double("lr_decay", options.lr_decay());
  visitor.Double("weight_decay", options.weight_decay());
  visitor.Double("initial_accumulator_value", options.initial_accumulator_value());
  visitor.Double("eps", options.eps());
}

// `al` is left out: every step writes its elements before it reads them.
void Visit(LBFGSParamState& state, FieldVisitor& visitor) {
  visitor.Int64("func_evals", state.func_evals());
  visitor.Int64("n_iter", state.n_iter());
  visitor.Double("t", state.t());
  visitor.Double("prev_loss", state.prev_loss());
  visitor.Tensor("d", Need::kAlways, Form::kFlat, state.d());
  visitor.Tensor("H_diag", Need::kAlways, Form::kNumber, state.H_diag());
  visitor.Tensor("prev_flat_grad", Need::kAlways, Form::kFlat, state.prev_flat_grad());
  visitor.Tensors("old_dirs", Form::kFlat, state.old_dirs());
  visitor.Tensors("old_stps", Form::kFlat, state.old_stps());
  visitor.Tensors("ro", Form::kNumber, state.ro());
}

// Visits an optional as its value, or as `absent`. A visitor that sets nothing leaves the optional as it is, even if it
// holds what means absent.
template <typename Optional, typename Value, typename VisitValue>
void VisitOptional(Optional& optional, const Value& absent, VisitValue visit_value) {
  const Value before = optional.value_or(absent);
  Value value = before;
  visit_value(value);
  if (value == before) return;
  if (value == absent) {
    optional = {};
  } else {
    optional = value;
  }
}

void Visit(LBFGSOptions& options, FieldVisitor& visitor) {
  visitor.Double("lr", options.lr());
  visitor.Int64("max_iter", options.max_iter());
  VisitOptional(options.max_eval(), int64_t{-1}, [&](int64_t& max_eval) { visitor.Int64("max_eval", max_eval); });
  visitor.Double("tolerance_grad", options.tolerance_grad());
  visitor.Double("tolerance_change", options.tolerance_change());
  visitor.Int64("history_size", options.history_size());
  VisitOptional(options.line_search_fn(), std::string(),
                [&](std::string& function) { visitor.Text("line_search_fn", function); });
}

template <typename Optimizer, typename State, typename Options>
OptimizerKind Kind(std::string_view type) {
  return {.type = type,
          .one_state = std::is_same_v<Optimizer, torch::optim::LBFGS>,
          .state_from_start = std::is_same_v<Optimizer, torch::optim::Adagrad>,
          .is =
              [](const torch::optim::Optimizer& optimizer) {
                return dynamic_cast<const Optimizer*>(&optimizer) != nullptr;
              },
          .make_state = []() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<State>(); },
          .make_options = []() -> std::unique_ptr<OptimizerOptions> { return std::make_unique<Options>(/*lr=*/1e-3); },
          .visit_state = [](OptimizerParamState& state,
                            FieldVisitor& visitor) { Visit(static_cast<State&>(state), visitor); },
          .visit_options = [](OptimizerOptions& options,
                              FieldVisitor& visitor) { Visit(static_cast<Options&>(options), visitor); }};
}

}  // namespace

std::span<const OptimizerKind> OptimizerKinds() {
  using namespace torch::optim;  // NOLINT: the table is only these names
  static const OptimizerKind kinds[] = {
      Kind<SGD, SGDParamState, SGDOptions>("SGD"),
      Kind<Adam, AdamParamState, AdamOptions>("Adam"),
      Kind<AdamW, AdamWParamState, AdamWOptions>("AdamW"),
      Kind<RMSprop, RMSpropParamState, RMSpropOptions>("RMSprop"),
      Kind<Adagrad, AdagradParamState, AdagradOptions>("Adagrad"),
      Kind<LBFGS, LBFGSParamState, LBFGSOptions>("LBFGS"),
  };
  return kinds;
}

const OptimizerKind* FindOptimizerKind(const torch::optim::Optimizer& optimizer) {
  for (const OptimizerKind& kind : OptimizerKinds()) {
    if (kind.is(optimizer)) return &kind;
  }
  return nullptr;
}

}  // namespace tidemark
