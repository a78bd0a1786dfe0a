// A small character-level transformer: embeddings, pre-norm blocks of causal attention and MLP, dropout throughout.

#ifndef EXAMPLES_CHAR_LM_MODEL_H_
#define EXAMPLES_CHAR_LM_MODEL_H_

#include <torch/nn.h>

#include <cstdint>
#include <functional>

namespace char_lm {

struct ModelConfig {
  int64_t vocabulary = 0;  // distinct characters
  int64_t context = 64;    // positions that attention looks back over
  int64_t width = 192;     // of the residual stream; a multiple of `heads`
  int64_t heads = 6;
  int64_t layers = 4;
  double dropout = 0.1;  // with a random generator that is part of the training state
  // Makes the MLP of a block, which has `width` input and output features. Null: Mlp is called.
  std::function<torch::nn::Sequential(const ModelConfig&)> make_mlp = nullptr;
};

// To 4 * width features, GELU, and back. The layers are "0" and "2".
torch::nn::Sequential Mlp(const ModelConfig& config);

// softmax(q k^T / sqrt(width / heads)) v over the positions up to the query's own.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const ModelConfig& config);

  // [batch, time, width] -> [batch, time, width]; time <= config.context.
  torch::Tensor forward(const torch::Tensor& x);

 private:
  int64_t heads_;
  torch::nn::Linear query_key_value_{nullptr};
  torch::nn::Linear out_{nullptr};
  torch::nn::Dropout attention_dropout_{nullptr};
  torch::nn::Dropout out_dropout_{nullptr};
  torch::Tensor future_;  // bool [1, 1, context, context]: true where a query must not look
};
TORCH_MODULE(Attention);

// x + attention(norm(x)), then x + mlp(norm(x)).
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const ModelConfig& config);

  // [batch, time, width] -> [batch, time, width]
  torch::Tensor forward(torch::Tensor x);

 private:
  torch::nn::LayerNorm attention_norm_{nullptr};
  Attention attention_{nullptr};
  torch::nn::LayerNorm mlp_norm_{nullptr};
  torch::nn::Sequential mlp_{nullptr};
};
TORCH_MODULE(Block);

class CharTransformerImpl : public torch::nn::Module {
 public:
  explicit CharTransformerImpl(const ModelConfig& config);

  // int64 [batch, time] -> logits [batch, time, vocabulary]; time <= config.context.
  torch::Tensor forward(const torch::Tensor& characters);

  int64_t ParameterCount() const;

 private:
  torch::nn::Embedding characters_{nullptr};
  torch::nn::Embedding positions_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Sequential blocks_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(CharTransformer);

}  // namespace char_lm

#endif  // EXAMPLES_CHAR_LM_MODEL_H_
