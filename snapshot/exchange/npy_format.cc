#include "snapshot/exchange/npy_format.h"

#include "fmt/format.h"

namespace tidemark {
namespace {

constexpr size_t kAlignment = 64;  // of the elements, as numpy writes them
constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);

}  // namespace

std::string_view NumpyDtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return "|b1";
    case Dtype::kUint8:
      return "|u1";
    case Dtype::kInt8:
      return "|i1";
    case Dtype::kUint16:
      return "<u2";
    case Dtype::kInt16:
      return "<i2";
    case Dtype::kUint32:
      return "<u4";
    case Dtype::kInt32:
      return "<i4";
    case Dtype::kUint64:
      return "<u8";
    case Dtype::kInt64:
      return "<i8";
    case Dtype::kFloat16:
      return "<f2";
    case Dtype::kFloat32:
      return "<f4";
    case Dtype::kFloat64:
      return "<f8";
    case Dtype::kComplex64:
      return "<c8";
    case Dtype::kComplex128:
      return "<c16";
    default:
      return {};
  }
}

std::string EncodeNpyHeader(Dtype dtype, std::span<const int64_t> shape) {
  std::string tuple;
  for (const int64_t dimension : shape) tuple += fmt::format("{}, ", dimension);
  // As Python writes a tuple: a comma at the end only where there is one element.
  if (!tuple.empty()) tuple.resize(tuple.size() - (shape.size() == 1 ? 1 : 2));
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", NumpyDtype(dtype), tuple);
  const size_t used = kMagic.size() + sizeof(uint16_t) + text.size() + 1;
  text.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace tidemark
