#include "snapshot/exchange/value_text.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "fmt/format.h"

namespace tidemark {
namespace {

template <typename T>
T NumberAt(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

template <typename T>
ParsedValue MakeNumber(EntryKind kind, Dtype dtype, T number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  return {.spec = {.kind = kind, .dtype = dtype}, .bytes = {bytes.begin(), bytes.end()}};
}

ParsedValue MakeText(EntryKind kind, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {.spec = {.kind = kind, .dtype = Dtype::kUint8, .shape = {static_cast<int64_t>(text.size())}},
          .bytes = {bytes.begin(), bytes.end()}};
}

// What the text seems to be; it may be written in another way than ours.
std::optional<ParsedValue> Read(EntryKind kind, std::string_view text) {
  const absl::string_view digits(text.data(), text.size());
  int64_t integer = 0;
  double number = 0;
  std::string bytes;
  switch (kind) {
    case EntryKind::kInt64:
      if (absl::SimpleAtoi(digits, &integer)) return MakeNumber(kind, Dtype::kInt64, integer);
      return std::nullopt;
    case EntryKind::kDouble:
      if (absl::SimpleAtod(digits, &number)) return MakeNumber(kind, Dtype::kFloat64, number);
      return std::nullopt;
    case EntryKind::kBool:
      return MakeNumber(kind, Dtype::kBool, static_cast<uint8_t>(text == "true"));
    case EntryKind::kString:
      return MakeText(kind, text);
    case EntryKind::kBytes:
      if (absl::Base64Unescape(digits, &bytes)) return MakeText(kind, bytes);
      return std::nullopt;
    case EntryKind::kTensor:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::string ValueText(const EntrySpec& spec, std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  switch (spec.kind) {
    case EntryKind::kInt64:
      return fmt::format("{}", NumberAt<int64_t>(bytes));
    case EntryKind::kDouble:
      return std::isnan(NumberAt<double>(bytes)) ? "nan" : fmt::format("{}", NumberAt<double>(bytes));
    case EntryKind::kBool:
      return NumberAt<uint8_t>(bytes) != 0 ? "true" : "false";
    case EntryKind::kString:
      return std::string(text);
    case EntryKind::kBytes:
    case EntryKind::kTensor:
      break;
  }
  return absl::Base64Escape({text.data(), text.size()});
}

std::optional<EntryKind> ParseValueKind(std::string_view name) {
  for (const EntryKind kind :
       {EntryKind::kBytes, EntryKind::kString, EntryKind::kInt64, EntryKind::kDouble, EntryKind::kBool}) {
    if (name == EntryKindName(kind)) return kind;
  }
  return std::nullopt;
}

std::optional<ParsedValue> ParseValueText(EntryKind kind, std::string_view text) {
  std::optional<ParsedValue> value = Read(kind, text);
  if (value && ValueText(value->spec, value->bytes) != text) return std::nullopt;
  return value;
}

}  // namespace tidemark
