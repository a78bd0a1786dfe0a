#include "tools/checkpoint_inspect/tensors/tensor_operand.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TensorOperand StepOperand(int64_t step, const std::string& directory = "") {
  TensorOperand operand;
  if (!directory.empty()) operand.kind = TensorOperand::Kind::kStepElsewhere;
  operand.selector = StepSelector(step);
  operand.path = directory;
  return operand;
}

TEST(TensorOperand, IsAStepOfTheStore) {
  EXPECT_EQ(ParseTensorOperand("1000").value(), StepOperand(1000));
  EXPECT_EQ(ParseTensorOperand("step:7").value(), StepOperand(7));
  EXPECT_EQ(ParseTensorOperand("latest")->selector, StepSelector::Latest());
  const TensorOperand best = ParseTensorOperand("best:acc@5:highest").value();
  EXPECT_EQ(best.kind, TensorOperand::Kind::kStep);
  EXPECT_EQ(best.selector.metric(), "acc@5");
}

TEST(TensorOperand, IsAStepOfAnotherStore) {
  EXPECT_EQ(ParseTensorOperand("run/ckpt@1000").value(), StepOperand(1000, "run/ckpt"));
  EXPECT_EQ(ParseTensorOperand("me@host/ckpt@5").value(), StepOperand(5, "me@host/ckpt"));
  EXPECT_EQ(ParseTensorOperand("5@6").value(), StepOperand(6, "5"));
  const TensorOperand best = ParseTensorOperand("run/ckpt@best:acc@5").value();
  EXPECT_EQ(best.path, "run/ckpt");
  EXPECT_EQ(best.selector.metric(), "acc@5");
  const TensorOperand tagged = ParseTensorOperand("run/ckpt@tag:paper/v1").value();
  EXPECT_EQ(tagged.path, "run/ckpt");
  EXPECT_EQ(tagged.selector.tag(), "paper/v1");
}

TEST(TensorOperand, IsAFile) {
  for (const char* path : {"model.safetensors", "a@1/b.safetensors", "model.safetensors.index.json"}) {
    const TensorOperand operand = ParseTensorOperand(path).value();
    EXPECT_EQ(operand.kind, TensorOperand::Kind::kSafetensors);
    EXPECT_EQ(operand.path, path);
  }
}

TEST(TensorOperand, RefusesWhatIsNone) {
  for (const char* text : {"", "run/ckpt", "run/ckpt@", "@5", "run/ckpt@newest", "-1", "model.npz"}) {
    const absl::Status status = ParseTensorOperand(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("DIR@STEP"), HasSubstr("latest-healthy")));
  }
}

}  // namespace
}  // namespace tidemark::inspect
