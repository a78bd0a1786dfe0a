// Hostile safetensors files, and indices of several.

#include "fmt/format.h"
#include "fuzz/hostile_case.h"

namespace tidemark::fuzz {
namespace {

std::string File(uint64_t length, std::string_view rest) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xff);
  return file + std::string(rest);
}

std::string Headed(std::string_view header, size_t data_bytes = 4) {
  return File(header.size(), std::string(header) + std::string(data_bytes, '\0'));
}

std::string Tensor(std::string_view fields, size_t data_bytes = 4) {
  return Headed(fmt::format(R"({{"w":{{{}}}}})", fields), data_bytes);
}

std::string Repeated(std::string_view text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

constexpr std::string_view kSound = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";

std::string At(std::string_view offsets) {
  return Tensor(fmt::format(R"("dtype":"F32","shape":[1],"data_offsets":[{}])", offsets));
}

// The sound tensor, and another in the first 8 bytes of the data.
std::string Beside(std::string_view other) {
  return Headed(fmt::format(R"({{"v":{{{}}},"w":{{{}}}}})", other, kSound), 8);
}

std::vector<HostileCase> HostileHeaders() {
  using enum absl::StatusCode;
  const std::string length = "length of the header at byte 0";
  return {
      {"truncation-empty.safetensors", kDataLoss, "0 bytes are no safetensors file", ""},
      {"truncation-header.safetensors", kDataLoss, length + ": 64 bytes, which do not fit", File(64, "{}")},
      {"truncation-data.safetensors", kDataLoss, "which is no place in 3 bytes of data", Tensor(kSound, 3)},
      {"count-header_of_an_eib.safetensors", kDataLoss, length + ": expected 2 to 100000000",
       File(uint64_t{1} << 60, "{}")},
      {"count-header_of_100_mb.safetensors", kDataLoss, length + ": 100000000 bytes, which do not fit",
       File(100'000'000, "{}")},
      {"count-header_of_nothing.safetensors", kDataLoss, length + ": expected 2 to", File(0, "{}")},
      {"count-dimensions.safetensors", kInvalidArgument, "tensor 'w' has more than 64 dimensions",
       Tensor(R"("shape":[)" + Repeated("1,", 100'000) + R"(1],"dtype":"F32","data_offsets":[0,4])")},
      {"header-space_before_it.safetensors", kDataLoss, "expected '{' as its first byte, found ' '", Headed(" {}", 0)},
      {"header-nul_behind_it.safetensors", kDataLoss, "is a NUL", Headed(std::string_view("{}\0\0", 4), 0)},
      {"header-more_behind_it.safetensors", kDataLoss, "parse error", Headed("{}{}", 0)},
      {"utf8-tensor_name.safetensors", kDataLoss, "it is not UTF-8", Headed("{\"\xc0\xaf\":1}", 0)},
      {"utf8-lone_surrogate.safetensors", kDataLoss, "surrogate", Headed(R"({"\udfff":1})", 0)},
      {"name-tensor_twice.safetensors", kDataLoss, "tensor 'w' is there twice",
       Headed(fmt::format(R"({{"w":{{{}}},"\u0077":{{{}}}}})", kSound, kSound))},
      {"name-field_twice.safetensors", kDataLoss, "has its data_offsets twice",
       Tensor(std::string(kSound) + R"(,"data_offsets":[0,4])")},
      {"name-metadata_twice.safetensors", kDataLoss, "'__metadata__' is there twice",
       Headed(R"({"__metadata__":{},"__metadata__":{}})", 0)},
      {"name-with_escapes.safetensors", kDataLoss, R"(tensor '\x1b[2J' has no dtype)",
       Headed(R"({"\u001b[2J":{"shape":[1],"data_offsets":[0,4]}})")},
      {"nesting-arrays.safetensors", kDataLoss, "has an array among its dimensions",
       Tensor(R"("shape":)" + std::string(500'000, '['))},
      {"nesting-objects.safetensors", kDataLoss, "'a' of the metadata: expected a string, found an object",
       Headed(R"({"__metadata__":)" + Repeated(R"({"a":)", 100'000), 0)},
  };
}

std::vector<HostileCase> HostilePlaces() {
  using enum absl::StatusCode;
  return {
      {"overflow-shape.safetensors", kDataLoss, "a shape of more bytes than 63 bits can count",
       Tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0)},
      {"overflow-shape_beside_zero.safetensors", kDataLoss, "a shape of more bytes than 63 bits can count",
       Tensor(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])", 0)},
      {"overflow-offset.safetensors", kDataLoss, "which is no place in 4 bytes of data",
       At("18446744073709551612,18446744073709551615")},
      {"overflow-number.safetensors", kDataLoss, "a number that is not whole", At("0,18446744073709551616")},
      {"overflow-negative.safetensors", kDataLoss, "a negative number", At("-4,0")},
      {"overlap-tensors.safetensors", kDataLoss, "begins at 2 of the data, where another one ends at 4: they overlap",
       Beside(R"("dtype":"U8","shape":[6],"data_offsets":[2,8])")},
      {"overlap-same_bytes.safetensors", kDataLoss, "they overlap", Beside(kSound)},
      {"overlap-end_before_begin.safetensors", kDataLoss, "is at [4, 0), which is no place", At("4,0")},
      {"safetensors-hole.safetensors", kDataLoss, "no tensor has the 2 bytes before it",
       Beside(R"("dtype":"U8","shape":[2],"data_offsets":[6,8])")},
      {"safetensors-bytes_behind_it.safetensors", kDataLoss, "the tensors have 4 bytes of data, and the file has 5",
       Tensor(kSound, 5)},
      {"safetensors-dtype.safetensors", kDataLoss, R"(the dtype '\x1b[31m', which is unknown)",
       Tensor(R"("dtype":"\u001b[31m")")},
      {"path-parent.index.json", kDataLoss, "'../../etc/passwd', which is no plain file name",
       R"({"weight_map":{"w":"../../etc/passwd"}})"},
      {"path-device.index.json", kDataLoss, "which is no plain file name", R"({"weight_map":{"w":"/dev/zero"}})"},
      {"name-index_twice.index.json", kDataLoss, "tensor 'w' is there twice", R"({"weight_map":{"w":"a","w":"b"}})"},
      {"nesting-index.index.json", kDataLoss, "parse error", R"({"a":)" + std::string(500'000, '[')},
  };
}

}  // namespace

std::vector<HostileCase> HostileSafetensors() {
  std::vector<HostileCase> cases = HostileHeaders();
  for (HostileCase& more : HostilePlaces()) cases.push_back(std::move(more));
  return cases;
}

}  // namespace tidemark::fuzz
