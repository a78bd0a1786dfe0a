// The training text as character numbers, and random batches of it.

#ifndef EXAMPLES_CHAR_LM_TEXT_H_
#define EXAMPLES_CHAR_LM_TEXT_H_

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace char_lm {

struct Batch {
  torch::Tensor input;   // int64 [batch, context]
  torch::Tensor target;  // int64 [batch, context]: the character after each of `input`
};

// Immutable.
class Text {
 public:
  // Reads a whole file; a character is a byte. kNotFound: it cannot be read. kInvalidArgument: it has fewer than
  // `length_min` characters.
  static absl::StatusOr<Text> Read(const std::string& path, int64_t length_min);

  // The distinct characters, ascending; a character's number is its place here.
  const std::string& vocabulary() const { return vocabulary_; }

  int64_t length() const { return characters_.numel(); }

  // `batch` windows of `context` characters from places drawn with LibTorch's CPU generator. Precondition: the text is
  // longer than `context`.
  Batch Draw(int64_t batch, int64_t context) const;

 private:
  std::string vocabulary_;
  torch::Tensor characters_;  // int64 [length]
};

}  // namespace char_lm

#endif  // EXAMPLES_CHAR_LM_TEXT_H_
