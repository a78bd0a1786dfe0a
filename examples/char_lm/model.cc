#include "examples/char_lm/model.h"

#include <cmath>
#include <limits>

namespace char_lm {

namespace nn = torch::nn;

AttentionImpl::AttentionImpl(const ModelConfig& config) : heads_(config.heads) {
  query_key_value_ = register_module("query_key_value", nn::Linear(config.width, 3 * config.width));
  out_ = register_module("out", nn::Linear(config.width, config.width));
  attention_dropout_ = register_module("attention_dropout", nn::Dropout(config.dropout));
  out_dropout_ = register_module("out_dropout", nn::Dropout(config.dropout));
  const auto ones = torch::ones({1, 1, config.context, config.context}, torch::kBool);
  future_ = register_buffer("future", torch::triu(ones, /*diagonal=*/1));
}

torch::Tensor AttentionImpl::forward(const torch::Tensor& x) {
  const int64_t batch = x.size(0);
  const int64_t time = x.size(1);
  const int64_t width = x.size(2);
  const int64_t head_width = width / heads_;

  // [3, batch, heads, time, head_width]
  const auto projected = query_key_value_(x).view({batch, time, 3, heads_, head_width}).permute({2, 0, 3, 1, 4});
  const auto query = projected[0];
  const auto key = projected[1];
  const auto value = projected[2];

  auto scores = torch::matmul(query, key.transpose(-2, -1)) / std::sqrt(static_cast<double>(head_width));
  const auto future = future_.slice(2, 0, time).slice(3, 0, time);
  scores = scores.masked_fill(future, -std::numeric_limits<float>::infinity());
  const auto weights = attention_dropout_(torch::softmax(scores, -1));
  const auto mixed = torch::matmul(weights, value).transpose(1, 2).reshape({batch, time, width});
  return out_dropout_(out_(mixed));
}

nn::Sequential Mlp(const ModelConfig& config) {
  return nn::Sequential(nn::Linear(config.width, 4 * config.width), nn::GELU(),
                        nn::Linear(4 * config.width, config.width), nn::Dropout(config.dropout));
}

BlockImpl::BlockImpl(const ModelConfig& config) {
  const nn::LayerNormOptions norm({config.width});
  attention_norm_ = register_module("attention_norm", nn::LayerNorm(norm));
  attention_ = register_module("attention", Attention(config));
  mlp_norm_ = register_module("mlp_norm", nn::LayerNorm(norm));
  mlp_ = register_module("mlp", config.make_mlp ? config.make_mlp(config) : Mlp(config));
}

torch::Tensor BlockImpl::forward(torch::Tensor x) {
  x = x + attention_(attention_norm_(x));
  return x + mlp_->forward(mlp_norm_(x));
}

CharTransformerImpl::CharTransformerImpl(const ModelConfig& config) {
  characters_ = register_module("characters", nn::Embedding(config.vocabulary, config.width));
  positions_ = register_module("positions", nn::Embedding(config.context, config.width));
  dropout_ = register_module("dropout", nn::Dropout(config.dropout));
  blocks_ = register_module("blocks", nn::Sequential());
  for (int64_t layer = 0; layer < config.layers; ++layer) blocks_->push_back(Block(config));
  norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({config.width})));
  head_ = register_module("head", nn::Linear(config.width, config.vocabulary));

  // Unit-variance embeddings, LibTorch's default, would drown what the blocks add to the residual stream.
  torch::NoGradGuard no_grad;
  characters_->weight.normal_(0.0, 0.02);
  positions_->weight.normal_(0.0, 0.02);
}

torch::Tensor CharTransformerImpl::forward(const torch::Tensor& characters) {
  const auto positions = torch::arange(characters.size(1), torch::kInt64);
  const auto x = dropout_(characters_(characters) + positions_(positions));
  return head_(norm_(blocks_->forward(x)));
}

int64_t CharTransformerImpl::ParameterCount() const {
  int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.numel();
  return count;
}

}  // namespace char_lm
