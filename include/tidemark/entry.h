// What a checkpoint is made of: named entries. Plain data, shared by every layer.
//
// The numeric values of the two enums are written to disk; they are frozen.

#ifndef TIDEMARK_ENTRY_H_
#define TIDEMARK_ENTRY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tidemark {

enum class EntryKind : uint8_t {
  kTensor = 1,  // dtype and shape as the trainer gave them
  kBytes = 2,   // an opaque blob: dtype kUint8, shape [length], at most kValueBytesMax
  kString = 3,  // UTF-8 text: dtype kUint8, shape [length]
  kInt64 = 4,   // one number: dtype kInt64, shape []
  kDouble = 5,  // one number: dtype kFloat64, shape []
  kBool = 6,    // one byte, 0 or 1: dtype kBool, shape []
};

// Element types. All elements are stored little-endian. The sub-byte integers (kInt1 .. kUint7) take one byte
// each, as they do in LibTorch's memory.
enum class Dtype : uint16_t {
  kBool = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kUint32 = 6,
  kInt32 = 7,
  kUint64 = 8,
  kInt64 = 9,
  kFloat16 = 16,
  kBfloat16 = 17,
  kFloat32 = 18,
  kFloat64 = 19,
  kComplex32 = 24,   // two kFloat16: real, imaginary
  kComplex64 = 25,   // two kFloat32
  kComplex128 = 26,  // two kFloat64
  kBcomplex32 = 27,  // two kBfloat16
  kFloat8E4M3Fn = 32,
  kFloat8E5M2 = 33,
  kFloat8E4M3Fnuz = 34,
  kFloat8E5M2Fnuz = 35,
  kFloat8E8M0Fnu = 36,
  kFloat4E2M1FnX2 = 37,  // two values in a byte
  kBits1x8 = 48,
  kBits2x4 = 49,
  kBits4x2 = 50,
  kBits8 = 51,
  kBits16 = 52,
  kInt1 = 56,
  kInt2 = 57,
  kInt3 = 58,
  kInt4 = 59,
  kInt5 = 60,
  kInt6 = 61,
  kInt7 = 62,
  kUint1 = 64,
  kUint2 = 65,
  kUint3 = 66,
  kUint4 = 67,
  kUint5 = 68,
  kUint6 = 69,
  kUint7 = 70,
};

// Properties of a dtype. `float_bytes` is the width of the floating-point numbers in an element (2 for kBfloat16, 4 for
// kComplex64). It is 0 if the element does not consist of floating-point numbers of 2, 4 or 8 bytes.
struct DtypeInfo {
  Dtype dtype;
  std::string_view name;  // "bfloat16", as NumPy and PyTorch spell it
  uint8_t element_bytes;
  uint8_t float_bytes;
};

// Null for an unknown number or name.
const DtypeInfo* FindDtype(uint16_t number);
const DtypeInfo* FindDtype(std::string_view name);

// Precondition: `dtype` is one of the enumerators.
const DtypeInfo& GetDtypeInfo(Dtype dtype);

// "tensor", "bytes", ...; empty for an unknown number.
std::string_view EntryKindName(EntryKind kind);

// One named item of a state, and the part of it that this rank holds.
struct EntrySpec {
  // "model.layers.0.weight": 1 to kNameBytesMax bytes of UTF-8; unique but for boxes of one tensor that do not overlap.
  std::string name;
  EntryKind kind = EntryKind::kTensor;
  Dtype dtype = Dtype::kUint8;
  // The global shape; [] is a single element. At most kDimensionsMax dimensions, each >= 0.
  std::vector<int64_t> shape;
  // The box of `shape` that is held here: elements [box_offset[d], box_offset[d] + box_extent[d]) of every
  // dimension d. Both empty: all of it.
  std::vector<int64_t> box_offset;
  std::vector<int64_t> box_extent;

  static constexpr size_t kNameBytesMax = 4096;
  static constexpr size_t kDimensionsMax = 64;
  // Of a kBytes or kString. These are read as a whole, so the cap bounds what a damaged or hostile length may allocate.
  static constexpr int64_t kValueBytesMax = int64_t{1} << 30;

  bool whole() const { return box_extent.empty(); }
  const std::vector<int64_t>& held_shape() const { return whole() ? shape : box_extent; }

  friend bool operator==(const EntrySpec&, const EntrySpec&) = default;
};

// "float32 [512, 128]"
std::string DescribeEntry(const EntrySpec& spec);

// Checks every rule above and sets `*bytes` to the size of the held box. kInvalidArgument: a rule is broken (the
// message names it), or the size does not fit in 63 bits.
absl::Status ValidateEntry(const EntrySpec& spec, uint64_t* bytes);

}  // namespace tidemark

#endif  // TIDEMARK_ENTRY_H_
