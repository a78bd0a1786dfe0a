#include "snapshot/exchange/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/exchange/strict_json.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr uint64_t kDataAlignment = 8;  // of the widest numbers, so that a mapped file can be used in place
constexpr size_t kQuotesBytes = 6;      // of a string of the metadata: "key":"value",

struct DtypeName {
  std::string_view name;
  Dtype dtype;
};

constexpr auto kDtypeNames = std::to_array<DtypeName>({{"BOOL", Dtype::kBool},
                                                       {"U8", Dtype::kUint8},
                                                       {"I8", Dtype::kInt8},
                                                       {"U16", Dtype::kUint16},
                                                       {"I16", Dtype::kInt16},
                                                       {"U32", Dtype::kUint32},
                                                       {"I32", Dtype::kInt32},
                                                       {"U64", Dtype::kUint64},
                                                       {"I64", Dtype::kInt64},
                                                       {"F16", Dtype::kFloat16},
                                                       {"BF16", Dtype::kBfloat16},
                                                       {"F32", Dtype::kFloat32},
                                                       {"F64", Dtype::kFloat64},
                                                       {"C64", Dtype::kComplex64},
                                                       {"F8_E4M3", Dtype::kFloat8E4M3Fn},
                                                       {"F8_E5M2", Dtype::kFloat8E5M2},
                                                       {"F8_E4M3FNUZ", Dtype::kFloat8E4M3Fnuz},
                                                       {"F8_E5M2FNUZ", Dtype::kFloat8E5M2Fnuz},
                                                       {"F8_E8M0", Dtype::kFloat8E8M0Fnu},
                                                       {"F4", Dtype::kFloat4E2M1FnX2}});

// Of the format, but of numbers that do not end at bytes.
constexpr auto kOtherDtypeNames = std::to_array<std::string_view>({"F6_E2M3", "F6_E3M2"});

std::string Printable(std::string_view name) {
  constexpr size_t kBytesMax = 200;
  const bool is_long = name.size() > kBytesMax;
  return storage::PrintableText(name.substr(0, kBytesMax)) + (is_long ? "..." : "");
}

absl::Status TensorError(const SafetensorsTensor& tensor, std::string_view what) {
  return absl::DataLossError(fmt::format("tensor '{}' {}", Printable(tensor.name), what));
}

// What the shape needs; kDataLoss where that does not fit. A zero does not make good what overflows beside it, as
// ValidateEntry has it.
absl::StatusOr<uint64_t> BytesOf(const SafetensorsTensor& tensor) {
  int64_t bytes = GetDtypeInfo(tensor.dtype).element_bytes;
  bool is_empty = false;
  for (const int64_t dimension : tensor.shape) {
    if (dimension == 0) {
      is_empty = true;
    } else if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
      return TensorError(tensor, "has a shape of more bytes than 63 bits can count");
    }
  }
  return is_empty ? 0 : static_cast<uint64_t>(bytes);
}

// Brings a shape that counts numbers of 4 bits to one that counts bytes.
absl::Status HalveLastDimension(SafetensorsTensor& tensor) {
  if (tensor.shape.empty() || tensor.shape.back() % 2 != 0) {
    return TensorError(tensor, "of F4 has no last dimension that is even, so it does not fill its bytes");
  }
  tensor.shape.back() /= 2;
  return absl::OkStatus();
}

absl::Status CheckTensor(SafetensorsTensor& tensor, uint64_t data_bytes) {
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    return TensorError(tensor, fmt::format("data_offsets [{}, {}) are outside the {} bytes of data", tensor.begin,
                                           tensor.end, data_bytes));
  }
  if (tensor.dtype == Dtype::kFloat4E2M1FnX2) {
    if (absl::Status status = HalveLastDimension(tensor); !status.ok()) return status;
  }
  const absl::StatusOr<uint64_t> bytes = BytesOf(tensor);
  if (!bytes.ok()) return bytes.status();
  if (*bytes == tensor.end - tensor.begin) return absl::OkStatus();
  return TensorError(tensor, fmt::format("is at [{}, {}), {} bytes, where its shape and dtype need {}", tensor.begin,
                                         tensor.end, tensor.end - tensor.begin, *bytes));
}

absl::Status CheckNamesAreUnique(const std::vector<SafetensorsTensor>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("tensor '{}' is there twice", Printable(*twice)));
}

// Every byte of the data belongs to one tensor.
absl::Status CheckLayout(std::vector<SafetensorsTensor>& tensors, uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin < covered) {
      return TensorError(tensor, fmt::format("begins at {} of the data, where another one ends at {}: they overlap",
                                             tensor.begin, covered));
    }
    if (tensor.begin > covered) {
      return TensorError(tensor, fmt::format("begins at {} of the data, and no tensor has the {} bytes before it",
                                             tensor.begin, tensor.begin - covered));
    }
    covered = tensor.end;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("the tensors have {} bytes of data, and the file has {}", covered, data_bytes));
}

// Takes in what the parser reads, and refuses what the format does not have as soon as it comes.
class HeaderHandler : public StrictJsonHandler {
 public:
  SafetensorsHeader TakeHeader() { return std::move(header_); }

  bool start_object(size_t) override {
    switch (where_) {
      case Where::kOutside:
        where_ = Where::kHeader;
        return true;
      case Where::kHeader:
        where_ = key_ == kMetadataKey ? Where::kMetadata : Where::kTensor;
        if (where_ == Where::kMetadata) return true;
        if (header_.tensors.size() == kSafetensorsTensorsMax) {
          return Refuse(fmt::format("it has more than {} tensors", kSafetensorsTensorsMax));
        }
        header_.tensors.emplace_back().name = key_;
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(std::string& text) override {
    switch (where_) {
      case Where::kHeader:
        if (text == kMetadataKey && std::exchange(has_metadata_, true)) return Refuse("'__metadata__' is there twice");
        key_ = std::move(text);
        return true;
      case Where::kMetadata:
        if (header_.metadata.contains(text)) {
          return Refuse(fmt::format("'{}' of the metadata is there twice", Printable(text)));
        }
        if (header_.metadata.size() == kSafetensorsMetadataMax) {
          return Refuse(fmt::format("its metadata has more than {} strings", kSafetensorsMetadataMax));
        }
        key_ = std::move(text);
        return true;
      default:
        return TensorKey(text);
    }
  }

  bool end_object() override {
    if (where_ == Where::kTensor) {
      for (const auto& [has, field] :
           {std::pair(has_dtype_, "dtype"), std::pair(has_shape_, "shape"), std::pair(has_offsets_, "data_offsets")}) {
        if (!has) return RefuseTensor(fmt::format("has no {}", field));
      }
    }
    where_ = where_ == Where::kHeader ? Where::kOutside : Where::kHeader;
    return true;
  }

  bool string(std::string& text) override {
    if (where_ == Where::kMetadata) {
      header_.metadata[std::move(key_)] = std::move(text);
      return true;
    }
    if (where_ != Where::kTensor || field_ != Field::kDtype) return Unexpected("a string");
    const auto known =
        std::find_if(kDtypeNames.begin(), kDtypeNames.end(), [&](const DtypeName& d) { return d.name == text; });
    if (known != kDtypeNames.end()) {
      header_.tensors.back().dtype = known->dtype;
      return true;
    }
    RefuseTensor(fmt::format("has the dtype '{}', which {}", Printable(text),
                             IsOther(text) ? "Tidemark has no type for" : "is unknown"));
    if (IsOther(text)) status_ = absl::InvalidArgumentError(status_.message());
    return false;
  }

  bool start_array(size_t) override {
    if (where_ != Where::kTensor || field_ == Field::kDtype) return Unexpected("an array");
    where_ = Where::kNumbers;
    offsets_ = 0;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (where_ != Where::kNumbers) return Unexpected("a number");
    SafetensorsTensor& tensor = header_.tensors.back();
    if (field_ == Field::kOffsets) {
      if (++offsets_ > 2) return RefuseTensor("has more than two data_offsets");
      (offsets_ == 1 ? tensor.begin : tensor.end) = value;
      return true;
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return RefuseTensor(fmt::format("has a dimension of {}", value));
    }
    if (tensor.shape.size() == EntrySpec::kDimensionsMax) {
      RefuseTensor(fmt::format("has more than {} dimensions", EntrySpec::kDimensionsMax));
      status_ = absl::InvalidArgumentError(status_.message());
      return false;
    }
    tensor.shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool end_array() override {
    where_ = Where::kTensor;
    if (field_ == Field::kOffsets && offsets_ != 2) {
      return RefuseTensor(fmt::format("has {} data_offsets, where two are expected", offsets_));
    }
    return true;
  }

 private:
  enum class Where { kOutside, kHeader, kMetadata, kTensor, kNumbers };
  enum class Field { kDtype, kShape, kOffsets };

  static bool IsOther(std::string_view dtype) {
    return std::find(kOtherDtypeNames.begin(), kOtherDtypeNames.end(), dtype) != kOtherDtypeNames.end();
  }

  bool TensorKey(const std::string& text) {
    bool* has = nullptr;
    if (text == "dtype") {
      field_ = Field::kDtype;
      has = &has_dtype_;
    } else if (text == "shape") {
      field_ = Field::kShape;
      has = &has_shape_;
    } else if (text == "data_offsets") {
      field_ = Field::kOffsets;
      has = &has_offsets_;
    } else {
      return RefuseTensor(fmt::format("has a field '{}', which is unknown", Printable(text)));
    }
    if (!std::exchange(*has, true)) return true;
    return RefuseTensor(fmt::format("has its {} twice", text));
  }

  bool RefuseTensor(std::string_view what) {
    return Refuse(fmt::format("tensor '{}' {}", Printable(header_.tensors.back().name), what));
  }

  bool Unexpected(std::string_view found) override {
    switch (where_) {
      case Where::kOutside:
        return Refuse(fmt::format("expected an object, found {}", found));
      case Where::kHeader:
        return Refuse(fmt::format("'{}': expected an object, found {}", Printable(key_), found));
      case Where::kMetadata:
        return Refuse(fmt::format("'{}' of the metadata: expected a string, found {}", Printable(key_), found));
      case Where::kTensor:
        return RefuseTensor(
            fmt::format("has {} as its {}", found,
                        field_ == Field::kDtype ? "dtype" : (field_ == Field::kShape ? "shape" : "data_offsets")));
      case Where::kNumbers:
        return RefuseTensor(fmt::format("has {} among its {}, where whole numbers of 0 or more are expected", found,
                                        field_ == Field::kShape ? "dimensions" : "data_offsets"));
    }
    return false;
  }

  SafetensorsHeader header_;
  Where where_ = Where::kOutside;
  std::string key_;  // of the header or the metadata
  bool has_metadata_ = false;
  // Of the last tensor.
  Field field_ = Field::kDtype;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  size_t offsets_ = 0;
};

absl::Status AppendTensor(const SafetensorsTensor& tensor, std::string* text) {
  const std::string_view dtype = SafetensorsDtypeName(tensor.dtype);
  if (dtype.empty()) {
    return absl::InvalidArgumentError(fmt::format("safetensors has no dtype for '{}' of {}", Printable(tensor.name),
                                                  GetDtypeInfo(tensor.dtype).name));
  }
  std::vector<int64_t> shape = tensor.shape;
  if (tensor.dtype == Dtype::kFloat4E2M1FnX2) {
    if (shape.empty() || __builtin_mul_overflow(shape.back(), int64_t{2}, &shape.back())) {
      return absl::InvalidArgumentError(
          fmt::format("safetensors counts the numbers of '{}' in its last dimension, which it has none for",
                      Printable(tensor.name)));
    }
  }
  *text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", QuotedJson(tensor.name), dtype,
                       fmt::join(shape, ","), tensor.begin, tensor.end);
  return absl::OkStatus();
}

}  // namespace

std::string_view SafetensorsDtypeName(Dtype dtype) {
  for (const DtypeName& known : kDtypeNames) {
    if (known.dtype == dtype) return known.name;
  }
  return {};
}

absl::StatusOr<uint64_t> DecodeSafetensorsLength(std::span<const std::byte, kSafetensorsLengthBytes> bytes,
                                                 uint64_t file_bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) length |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  if (length < 2 || length > kSafetensorsHeaderBytesMax) {
    return absl::DataLossError(
        fmt::format("not a safetensors file: length of the header at byte 0: expected 2 to {} bytes, found {}",
                    kSafetensorsHeaderBytesMax, length));
  }
  if (file_bytes < kSafetensorsLengthBytes || length > file_bytes - kSafetensorsLengthBytes) {
    return absl::DataLossError(fmt::format(
        "not a safetensors file: length of the header at byte 0: {} bytes, which do not fit into a file of {} bytes",
        length, file_bytes));
  }
  return length;
}

absl::StatusOr<SafetensorsHeader> DecodeSafetensorsHeader(std::string_view text, uint64_t data_bytes) {
  HeaderHandler handler;
  if (absl::Status status = ParseStrictJson(text, kSafetensorsStringBytesMax, handler); !status.ok()) {
    return absl::Status(status.code(), fmt::format("safetensors header: {}", std::string(status.message())));
  }
  SafetensorsHeader header = handler.TakeHeader();
  absl::Status status = CheckNamesAreUnique(header.tensors);
  for (size_t i = 0; i < header.tensors.size() && status.ok(); ++i) {
    status = CheckTensor(header.tensors[i], data_bytes);
  }
  if (status.ok()) status = CheckLayout(header.tensors, data_bytes);
  if (!status.ok()) {
    return absl::Status(status.code(), fmt::format("safetensors header: {}", std::string(status.message())));
  }
  return header;
}

absl::StatusOr<std::string> EncodeSafetensorsHeader(const SafetensorsHeader& header) {
  if (absl::Status status = CheckNamesAreUnique(header.tensors); !status.ok()) {
    return absl::InvalidArgumentError(status.message());
  }
  if (header.tensors.size() > kSafetensorsTensorsMax) {
    return absl::InvalidArgumentError(
        fmt::format("{} tensors, where a file may have {}", header.tensors.size(), kSafetensorsTensorsMax));
  }
  if (header.metadata.size() > kSafetensorsMetadataMax) {
    return absl::InvalidArgumentError(fmt::format("{} strings of metadata, where a file may have {}",
                                                  header.metadata.size(), kSafetensorsMetadataMax));
  }
  // With room for the length in front.
  std::string text(kSafetensorsLengthBytes, '\0');
  size_t metadata_bytes = 0;
  for (const auto& [key, value] : header.metadata) metadata_bytes += key.size() + value.size() + kQuotesBytes;
  text.reserve(text.size() + metadata_bytes);
  text += '{';
  if (!header.metadata.empty()) {
    text += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : header.metadata) text += QuotedJson(key) + ":" + QuotedJson(value) + ",";
    text.back() = '}';
    text += ',';
  }
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (tensor.name == kMetadataKey) {
      return absl::InvalidArgumentError(fmt::format("safetensors reserves the name {}", kMetadataKey));
    }
    if (absl::Status status = AppendTensor(tensor, &text); !status.ok()) return status;
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.append((kDataAlignment - text.size() % kDataAlignment) % kDataAlignment, ' ');
  const size_t bytes = text.size() - kSafetensorsLengthBytes;
  if (bytes > kSafetensorsHeaderBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("the header takes {} bytes, where a file may have {}", bytes, kSafetensorsHeaderBytesMax));
  }
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) text[i] = static_cast<char>(bytes >> (8 * i) & 0xff);
  return text;
}

}  // namespace tidemark
