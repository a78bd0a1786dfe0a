// A text as character numbers: the part to train on with random batches of it, and the part held out for validation.

#ifndef EXAMPLES_CHAR_LM_TEXT_H_
#define EXAMPLES_CHAR_LM_TEXT_H_

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace char_lm {

struct Batch {
  torch::Tensor input;   // int64 [batch, context]
  torch::Tensor target;  // int64 [batch, context]: the character after each of `input`
};

// The last tenth of a text is held out: whoever validates must not have trained on it.
enum class TextPart { kTraining, kHeldOut };

// Immutable.
class Text {
 public:
  // Reads a part of a file; a character is a byte. kNotFound: it cannot be read. kInvalidArgument: the part has fewer
  // than `length_min` characters.
  static absl::StatusOr<Text> Read(const std::string& path, TextPart part, int64_t length_min);

  // The distinct characters of the whole file, ascending; a character's number is its place here.
  const std::string& vocabulary() const { return vocabulary_; }

  int64_t length() const { return characters_.numel(); }

  // `batch` windows of `context` characters from places drawn with LibTorch's CPU generator. Precondition: the text is
  // longer than `context`.
  Batch Draw(int64_t batch, int64_t context) const;

  // All windows of `context` characters, one behind the other, at most `batch` in each; what is left at the end is left
  // out. Precondition: as in Draw.
  std::vector<Batch> Walk(int64_t batch, int64_t context) const;

 private:
  std::string vocabulary_;
  torch::Tensor characters_;  // int64 [length]
};

}  // namespace char_lm

#endif  // EXAMPLES_CHAR_LM_TEXT_H_
