#include "snapshot/torch/torch_dtypes.h"

#include <array>
#include <cstddef>
#include <string_view>

namespace tidemark {
namespace {

struct Spelling {
  std::string_view torch;  // c10::toString
  Dtype dtype;
};

// By name, because the set grows from release to release and the enumerators of newer ones do not compile with older.
constexpr Spelling kSpellings[] = {
    {"Bool", Dtype::kBool},
    {"Byte", Dtype::kUint8},
    {"Char", Dtype::kInt8},
    {"UInt16", Dtype::kUint16},
    {"Short", Dtype::kInt16},
    {"UInt32", Dtype::kUint32},
    {"Int", Dtype::kInt32},
    {"UInt64", Dtype::kUint64},
    {"Long", Dtype::kInt64},
    {"Half", Dtype::kFloat16},
    {"BFloat16", Dtype::kBfloat16},
    {"Float", Dtype::kFloat32},
    {"Double", Dtype::kFloat64},
    {"ComplexHalf", Dtype::kComplex32},
    {"ComplexFloat", Dtype::kComplex64},
    {"ComplexDouble", Dtype::kComplex128},
    {"BComplex32", Dtype::kBcomplex32},
    {"Float8_e4m3fn", Dtype::kFloat8E4M3Fn},
    {"Float8_e5m2", Dtype::kFloat8E5M2},
    {"Float8_e4m3fnuz", Dtype::kFloat8E4M3Fnuz},
    {"Float8_e5m2fnuz", Dtype::kFloat8E5M2Fnuz},
    {"Float8_e8m0fnu", Dtype::kFloat8E8M0Fnu},
    {"Float4_e2m1fn_x2", Dtype::kFloat4E2M1FnX2},
    {"Bits1x8", Dtype::kBits1x8},
    {"Bits2x4", Dtype::kBits2x4},
    {"Bits4x2", Dtype::kBits4x2},
    {"Bits8", Dtype::kBits8},
    {"Bits16", Dtype::kBits16},
    {"Int1", Dtype::kInt1},
    {"Int2", Dtype::kInt2},
    {"Int3", Dtype::kInt3},
    {"Int4", Dtype::kInt4},
    {"Int5", Dtype::kInt5},
    {"Int6", Dtype::kInt6},
    {"Int7", Dtype::kInt7},
    {"UInt1", Dtype::kUint1},
    {"UInt2", Dtype::kUint2},
    {"UInt3", Dtype::kUint3},
    {"UInt4", Dtype::kUint4},
    {"UInt5", Dtype::kUint5},
    {"UInt6", Dtype::kUint6},
    {"UInt7", Dtype::kUint7},
};

constexpr size_t kScalarTypes = static_cast<size_t>(c10::ScalarType::NumOptions);

using Table = std::array<std::optional<Dtype>, kScalarTypes>;

const Table& DtypesByScalarType() {
  static const Table* table = [] {
    auto* made = new Table();
    for (size_t i = 0; i < kScalarTypes; ++i) {
      const auto type = static_cast<c10::ScalarType>(i);
      if (type == c10::ScalarType::Undefined) continue;
      for (const Spelling& spelling : kSpellings) {
        if (spelling.torch == c10::toString(type)) (*made)[i] = spelling.dtype;
      }
    }
    return made;
  }();
  return *table;
}

}  // namespace

std::optional<Dtype> ToDtype(c10::ScalarType type) {
  const auto index = static_cast<size_t>(type);
  return index < kScalarTypes ? DtypesByScalarType()[index] : std::nullopt;
}

std::optional<c10::ScalarType> ToScalarType(Dtype dtype) {
  const Table& table = DtypesByScalarType();
  for (size_t i = 0; i < kScalarTypes; ++i) {
    if (table[i] == dtype) return static_cast<c10::ScalarType>(i);
  }
  return std::nullopt;
}

}  // namespace tidemark
