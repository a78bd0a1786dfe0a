// The public tidemark/entry.h, at home here because storage reads and writes these numbers.

#include "tidemark/entry.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/bytes/utf8.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

constexpr DtypeInfo kDtypes[] = {
    {Dtype::kBool, "bool", 1, 0},
    {Dtype::kUint8, "uint8", 1, 0},
    {Dtype::kInt8, "int8", 1, 0},
    {Dtype::kUint16, "uint16", 2, 0},
    {Dtype::kInt16, "int16", 2, 0},
    {Dtype::kUint32, "uint32", 4, 0},
    {Dtype::kInt32, "int32", 4, 0},
    {Dtype::kUint64, "uint64", 8, 0},
    {Dtype::kInt64, "int64", 8, 0},
    {Dtype::kFloat16, "float16", 2, 2},
    {Dtype::kBfloat16, "bfloat16", 2, 2},
    {Dtype::kFloat32, "float32", 4, 4},
    {Dtype::kFloat64, "float64", 8, 8},
    {Dtype::kComplex32, "complex32", 4, 2},
    {Dtype::kComplex64, "complex64", 8, 4},
    {Dtype::kComplex128, "complex128", 16, 8},
    {Dtype::kBcomplex32, "bcomplex32", 4, 2},
    {Dtype::kFloat8E4M3Fn, "float8_e4m3fn", 1, 0},
    {Dtype::kFloat8E5M2, "float8_e5m2", 1, 0},
    {Dtype::kFloat8E4M3Fnuz, "float8_e4m3fnuz", 1, 0},
    {Dtype::kFloat8E5M2Fnuz, "float8_e5m2fnuz", 1, 0},
    {Dtype::kFloat8E8M0Fnu, "float8_e8m0fnu", 1, 0},
    {Dtype::kFloat4E2M1FnX2, "float4_e2m1fn_x2", 1, 0},
    {Dtype::kBits1x8, "bits1x8", 1, 0},
    {Dtype::kBits2x4, "bits2x4", 1, 0},
    {Dtype::kBits4x2, "bits4x2", 1, 0},
    {Dtype::kBits8, "bits8", 1, 0},
    {Dtype::kBits16, "bits16", 2, 0},
    {Dtype::kInt1, "int1", 1, 0},
    {Dtype::kInt2, "int2", 1, 0},
    {Dtype::kInt3, "int3", 1, 0},
    {Dtype::kInt4, "int4", 1, 0},
    {Dtype::kInt5, "int5", 1, 0},
    {Dtype::kInt6, "int6", 1, 0},
    {Dtype::kInt7, "int7", 1, 0},
    {Dtype::kUint1, "uint1", 1, 0},
    {Dtype::kUint2, "uint2", 1, 0},
    {Dtype::kUint3, "uint3", 1, 0},
    {Dtype::kUint4, "uint4", 1, 0},
    {Dtype::kUint5, "uint5", 1, 0},
    {Dtype::kUint6, "uint6", 1, 0},
    {Dtype::kUint7, "uint7", 1, 0},
};

absl::Status Broken(const EntrySpec& spec, std::string_view rule) {
  return absl::InvalidArgumentError(
      fmt::format("entry '{}': {}", storage::PrintableText(spec.name.substr(0, 200)), rule));
}

// Number of elements of `extents`; false if it does not fit in 63 bits, counted without the zeros so that no later
// product can either.
bool CountElements(const std::vector<int64_t>& extents, int64_t* count) {
  int64_t product = 1;
  bool zero = false;
  for (int64_t extent : extents) {
    if (extent == 0) {
      zero = true;
    } else if (__builtin_mul_overflow(product, extent, &product)) {
      return false;
    }
  }
  *count = zero ? 0 : product;
  return true;
}

bool HasShapeOfKind(const EntrySpec& spec) {
  switch (spec.kind) {
    case EntryKind::kTensor:
      return true;
    case EntryKind::kBytes:
    case EntryKind::kString:
      return spec.dtype == Dtype::kUint8 && spec.shape.size() == 1;
    case EntryKind::kInt64:
      return spec.dtype == Dtype::kInt64 && spec.shape.empty();
    case EntryKind::kDouble:
      return spec.dtype == Dtype::kFloat64 && spec.shape.empty();
    case EntryKind::kBool:
      return spec.dtype == Dtype::kBool && spec.shape.empty();
  }
  return false;
}

}  // namespace

const DtypeInfo* FindDtype(uint16_t number) {
  const auto found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                  [&](const DtypeInfo& info) { return static_cast<uint16_t>(info.dtype) == number; });
  return found == std::end(kDtypes) ? nullptr : found;
}

const DtypeInfo* FindDtype(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeInfo& info) { return info.name == name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

const DtypeInfo& GetDtypeInfo(Dtype dtype) {
  const DtypeInfo* info = FindDtype(static_cast<uint16_t>(dtype));
  if (info == nullptr) std::abort();
  return *info;
}

std::string_view EntryKindName(EntryKind kind) {
  switch (kind) {
    case EntryKind::kTensor:
      return "tensor";
    case EntryKind::kBytes:
      return "bytes";
    case EntryKind::kString:
      return "string";
    case EntryKind::kInt64:
      return "int64";
    case EntryKind::kDouble:
      return "double";
    case EntryKind::kBool:
      return "bool";
  }
  return "";
}

std::string DescribeEntry(const EntrySpec& spec) {
  if (spec.kind != EntryKind::kTensor) return std::string(EntryKindName(spec.kind));
  const DtypeInfo* info = FindDtype(static_cast<uint16_t>(spec.dtype));
  return fmt::format("{} [{}]", info ? info->name : "?", fmt::join(spec.shape, ", "));
}

absl::Status ValidateEntry(const EntrySpec& spec, uint64_t* bytes) {
  if (spec.name.empty()) return absl::InvalidArgumentError("an entry has an empty name");
  if (spec.name.size() > EntrySpec::kNameBytesMax) {
    return Broken(spec, fmt::format("its name has {} bytes, more than {}", spec.name.size(), EntrySpec::kNameBytesMax));
  }
  if (!storage::IsUtf8(spec.name)) {
    return absl::InvalidArgumentError(
        fmt::format("an entry has a name that is not UTF-8: '{}'", storage::PrintableText(spec.name)));
  }
  const DtypeInfo* info = FindDtype(static_cast<uint16_t>(spec.dtype));
  if (info == nullptr) return Broken(spec, fmt::format("dtype {} is unknown", static_cast<uint16_t>(spec.dtype)));
  if (EntryKindName(spec.kind).empty())
    return Broken(spec, fmt::format("kind {} is unknown", static_cast<uint8_t>(spec.kind)));
  if (spec.shape.size() > EntrySpec::kDimensionsMax) {
    return Broken(spec,
                  fmt::format("it has {} dimensions, more than {}", spec.shape.size(), EntrySpec::kDimensionsMax));
  }
  if (!HasShapeOfKind(spec))
    return Broken(spec, fmt::format("dtype or shape do not fit its kind, {}", EntryKindName(spec.kind)));
  if ((spec.kind == EntryKind::kBytes || spec.kind == EntryKind::kString) &&
      spec.shape[0] > EntrySpec::kValueBytesMax) {
    return Broken(spec, fmt::format("it has {} bytes, more than {}", spec.shape[0], EntrySpec::kValueBytesMax));
  }
  if (std::any_of(spec.shape.begin(), spec.shape.end(), [](int64_t extent) { return extent < 0; })) {
    return Broken(spec, fmt::format("shape [{}] has a negative extent", fmt::join(spec.shape, ", ")));
  }
  if (spec.box_offset.size() != spec.box_extent.size() ||
      (!spec.whole() && spec.box_extent.size() != spec.shape.size())) {
    return Broken(spec, "its box and its shape differ in their number of dimensions");
  }
  for (size_t d = 0; d < spec.box_extent.size(); ++d) {
    const int64_t offset = spec.box_offset[d];
    const int64_t extent = spec.box_extent[d];
    if (offset < 0 || extent < 0 || offset > spec.shape[d] || extent > spec.shape[d] - offset) {
      return Broken(spec,
                    fmt::format("box [{}, +{}) leaves dimension {} of extent {}", offset, extent, d, spec.shape[d]));
    }
  }
  int64_t global = 0;
  int64_t held = 0;
  int64_t total = 0;
  if (!CountElements(spec.shape, &global) || !CountElements(spec.held_shape(), &held) ||
      __builtin_mul_overflow(global, static_cast<int64_t>(info->element_bytes), &total)) {
    return Broken(spec, fmt::format("shape [{}] has more bytes than 63 bits can count", fmt::join(spec.shape, ", ")));
  }
  *bytes = static_cast<uint64_t>(held) * info->element_bytes;
  return absl::OkStatus();
}

}  // namespace tidemark
