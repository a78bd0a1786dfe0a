// The loss on text that the training does not see.

#ifndef EXAMPLES_CHAR_LM_VALIDATION_H_
#define EXAMPLES_CHAR_LM_VALIDATION_H_

#include <vector>

#include "examples/char_lm/model.h"
#include "examples/char_lm/text.h"

namespace char_lm {

// The mean loss over all characters of the batches, which Text::Walk gives for TextPart::kHeldOut. The model is in
// evaluation mode, so that no random number is drawn. Throws what LibTorch throws.
double HeldOutLoss(const std::vector<Batch>& batches, CharTransformer& model);

}  // namespace char_lm

#endif  // EXAMPLES_CHAR_LM_VALIDATION_H_
