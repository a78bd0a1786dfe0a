#include "tools/checkpoint_inspect/tensors/tensor_stream.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/fake_tensor_source.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;

TEST(StreamTensors, VisitsEveryElementOnceAndInOrder) {
  const uint64_t large = 3 * kStreamBytes / 4 + 5;
  PatternTensorSource source({{Dtype::kFloat32, 3},
                              {Dtype::kFloat32, 0},
                              {Dtype::kUint8, static_cast<int64_t>(large)},
                              {Dtype::kFloat64, 2},
                              {Dtype::kFloat32, static_cast<int64_t>(large)}},
                             1 << 20);
  const Lane lane{.source = &source, .entries = {0, 1, 2, 3, 4}};
  std::vector<uint64_t> elements(5);
  std::vector<int> ends(5);
  size_t item = 0;
  const absl::Status status = StreamTensors({&lane, 1}, [&](const TensorBlock& block) {
    EXPECT_TRUE(block.item == item || block.item == item + 1);
    item = block.item;
    EXPECT_EQ(block.first_element, elements[item]);
    const uint64_t width = GetDtypeInfo(source.entries()[item].spec.dtype).element_bytes;
    EXPECT_EQ(block.bytes[0].size(), block.elements * width);
    for (size_t i = 0; i < block.bytes[0].size(); i += 997) {
      if (block.bytes[0][i] != PatternTensorSource::ByteAt(item, elements[item] * width + i))
        return absl::InternalError("wrong");
    }
    elements[item] += block.elements;
    ends[item] += block.last ? 1 : 0;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(elements, ElementsAre(3, 0, large, 2, large));
  EXPECT_THAT(ends, ElementsAre(1, 1, 1, 1, 1));
  EXPECT_EQ(source.cut_chunks, 0);
}

TEST(StreamTensors, GivesTheSameElementsOfBothLanes) {
  const auto elements = static_cast<int64_t>(kStreamBytes / 3);
  PatternTensorSource wide({{Dtype::kFloat32, elements}}, 4 << 20);
  PatternTensorSource narrow({{Dtype::kUint8, 1}, {Dtype::kBfloat16, elements}}, 1 << 20);
  const Lane lanes[] = {{.source = &wide, .entries = {0}}, {.source = &narrow, .entries = {1}}};
  uint64_t seen = 0;
  const absl::Status status = StreamTensors(lanes, [&](const TensorBlock& block) {
    EXPECT_EQ(block.bytes[0].size(), block.elements * 4);
    EXPECT_EQ(block.bytes[1].size(), block.elements * 2);
    seen += block.elements;
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(seen, static_cast<uint64_t>(elements));
}

TEST(StreamTensors, EndsWithTheFirstError) {
  PatternTensorSource source(
      {{Dtype::kFloat32, 3}, {Dtype::kUint8, static_cast<int64_t>(kStreamBytes)}, {Dtype::kUint8, 1}});
  source.fails_at = 1;
  const Lane lane{.source = &source, .entries = {0, 1, 2}};
  EXPECT_EQ(StreamTensors({&lane, 1}, [](const TensorBlock&) { return absl::OkStatus(); }),
            absl::DataLossError("rotten"));
  source.fails_at = SIZE_MAX;
  EXPECT_EQ(StreamTensors({&lane, 1}, [](const TensorBlock&) { return absl::OutOfRangeError("enough"); }),
            absl::OutOfRangeError("enough"));
}

}  // namespace
}  // namespace tidemark::inspect
