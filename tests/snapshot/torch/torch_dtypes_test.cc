#include "snapshot/torch/torch_dtypes.h"

#include <set>

#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

std::vector<c10::ScalarType> AllScalarTypes() {
  std::vector<c10::ScalarType> types;
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    if (static_cast<c10::ScalarType>(i) != c10::ScalarType::Undefined) types.push_back(static_cast<c10::ScalarType>(i));
  }
  return types;
}

TEST(TorchDtypes, EveryScalarTypeOfThisLibTorchThatIsNotQuantisedHasADtypeOfItsOwn) {
  std::set<Dtype> seen;
  for (const c10::ScalarType type : AllScalarTypes()) {
    SCOPED_TRACE(c10::toString(type));
    const std::optional<Dtype> dtype = ToDtype(type);
    ASSERT_EQ(dtype.has_value(), !c10::isQIntType(type));
    if (!dtype) continue;
    EXPECT_TRUE(seen.insert(*dtype).second);
    EXPECT_EQ(ToScalarType(*dtype), type);
    EXPECT_EQ(GetDtypeInfo(*dtype).element_bytes, c10::elementSize(type));
  }
}

TEST(TorchDtypes, MapToTheNamesThatPyTorchUses) {
  EXPECT_EQ(GetDtypeInfo(*ToDtype(at::kBFloat16)).name, "bfloat16");
  EXPECT_EQ(GetDtypeInfo(*ToDtype(at::kLong)).name, "int64");
  EXPECT_EQ(GetDtypeInfo(*ToDtype(at::kComplexFloat)).name, "complex64");
}

TEST(TorchDtypes, GiveNothingForUndefined) { EXPECT_EQ(ToDtype(c10::ScalarType::Undefined), std::nullopt); }

}  // namespace
}  // namespace tidemark
