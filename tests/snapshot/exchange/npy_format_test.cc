#include "snapshot/exchange/npy_format.h"

#include <vector>

#include "gmock/gmock.h"

namespace tidemark {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Header(const std::vector<int64_t>& shape) { return EncodeNpyHeader(Dtype::kFloat32, shape); }

TEST(NpyFormat, BeginsAndEndsAsNumpyReadsIt) {
  const std::string header = Header({2, 3});
  EXPECT_THAT(header, StartsWith(std::string("\x93NUMPY\x01\x00\x76\x00", 10) +
                                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"));
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.back(), '\n');
}

TEST(NpyFormat, ShapesAreTuplesOfPython) {
  EXPECT_THAT(Header({}), HasSubstr("'shape': (), }"));
  EXPECT_THAT(Header({7}), HasSubstr("'shape': (7,), }"));
  EXPECT_THAT(Header({0, 7}), HasSubstr("'shape': (0, 7), }"));
  EXPECT_EQ(Header(std::vector<int64_t>(64, INT64_MAX)).size() % 64, 0u);
}

TEST(NpyFormat, KnowsTheDtypesThatNumpyHas) {
  int known = 0;
  for (uint16_t number = 0; number < 128; ++number) {
    const DtypeInfo* info = FindDtype(number);
    if (info == nullptr) continue;
    const std::string_view dtype = NumpyDtype(info->dtype);
    if (dtype.empty()) continue;
    ++known;
    EXPECT_EQ(dtype.substr(2), std::to_string(info->element_bytes)) << info->name;
  }
  EXPECT_EQ(known, 14);
  EXPECT_EQ(NumpyDtype(Dtype::kBfloat16), "");
  EXPECT_EQ(NumpyDtype(Dtype::kFloat8E5M2), "");
}

}  // namespace
}  // namespace tidemark
