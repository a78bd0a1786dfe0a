// Hostile safetensors files, and indices of several.

#include <map>

#include "fmt/format.h"
#include "fuzz/hostile_case.h"
#include "nlohmann/json.hpp"

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
      {"truncation-empty.safetensors", kDataLoss, "0 bytes are too short for a safetensors file", ""},
      {"truncation-header.safetensors", kDataLoss, length + ": 64 bytes, which do not fit", File(64, "{}")},
      {"truncation-data.safetensors", kDataLoss, "are outside the 3 bytes of data", Tensor(kSound, 3)},
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

// A file without tensors.
std::string WithMetadata(const std::map<std::string, std::string>& strings) {
  const nlohmann::json header = {{"__metadata__", strings}};
  return Headed(header.dump(), 0);
}

std::string ManyStrings(size_t count) {
  std::map<std::string, std::string> strings;
  for (size_t i = 0; i < count; ++i) strings[fmt::format("{}", i)] = "";
  return WithMetadata(strings);
}

// What says to be an export, and this.
std::string Export(std::map<std::string, std::string> strings) {
  strings["tidemark.step"] = "1";
  strings["tidemark.store"] = "";
  return WithMetadata(strings);
}

std::string ExportedMetrics(std::string_view text) { return Export({{"tidemark.metrics", std::string(text)}}); }

std::string ExportedMetadata(std::string_view text) { return Export({{"tidemark.user_metadata", std::string(text)}}); }

std::string ExportedValue(std::string_view kind, std::string_view text) {
  return Export({{"n", std::string(text)}, {"tidemark.kind.n", std::string(kind)}});
}

std::vector<HostileCase> HostileMetadata() {
  using enum absl::StatusCode;
  const std::string no_metrics = "'tidemark.metrics' of the metadata has invalid metrics";
  const std::string no_object =
      "'tidemark.user_metadata' of the metadata is not a JSON object of at most 1048576 bytes";
  return {
      {"count-metadata_strings.safetensors", kInvalidArgument, "more keys than the 8192 of a step's user metadata",
       ManyStrings(200'000)},
      {"count-exported_bytes.safetensors", kDataLoss, no_object,
       ExportedMetadata(R"({"a":")" + std::string(1 << 20, 'x') + R"("})")},
      {"count-exported_keys.safetensors", kDataLoss, no_object,
       ExportedMetadata("{" + Repeated(R"("a":0,)", 100'000) + R"("b":0})")},
      {"count-exported_objects.safetensors", kDataLoss, no_object,
       ExportedMetadata(R"({"a":[)" + Repeated("{},", 300'000) + "{}]")},
      {"count-exported_metrics.safetensors", kDataLoss, no_metrics,
       ExportedMetrics("{" + Repeated(R"("a":0.0,)", 100'000) + R"("b":0.0})")},
      {"count-exported_metric_name.safetensors", kDataLoss, no_metrics,
       ExportedMetrics("{\"" + std::string(4097, 'n') + "\":1.0}")},
      {"name-metadata_key_twice.safetensors", kDataLoss, "'a' of the metadata is there twice",
       Headed(R"({"__metadata__":{"a":"x","\u0061":"y"}})", 0)},
      {"name-exported_metric_twice.safetensors", kDataLoss, no_metrics, ExportedMetrics(R"({"a":1.0,"a":1.0})")},
      {"name-exported_kind.safetensors", kDataLoss, R"(is '\x1b[2J', which is not a kind of entry)",
       ExportedValue("\x1b[2J", "")},
      {"name-exported_kind_of_a_kind.safetensors", kDataLoss, "is present, but the entry that it names is not",
       Export({{"tidemark.kind.tidemark.kind.x", "string"}, {"tidemark.kind.x", "int64"}})},
      {"nesting-exported_objects.safetensors", kDataLoss, no_object,
       ExportedMetadata(Repeated(R"({"a":)", 100'000) + "0" + std::string(100'000, '}'))},
      {"nesting-exported_arrays.safetensors", kDataLoss, no_object,
       ExportedMetadata(R"({"a":)" + std::string(500'000, '['))},
      {"nesting-exported_metrics.safetensors", kDataLoss, no_metrics,
       ExportedMetrics(R"({"a":)" + std::string(500'000, '['))},
      {"overflow-exported_metric.safetensors", kDataLoss, no_metrics, ExportedMetrics(R"({"a":1e999})")},
      {"overflow-exported_integer.safetensors", kDataLoss, "'n' of the metadata is not a valid int64",
       ExportedValue("int64", "9223372036854775808")},
      {"overflow-exported_double.safetensors", kDataLoss, "'n' of the metadata is not a valid double",
       ExportedValue("double", "1e999")},
      {"utf8-metadata.safetensors", kDataLoss, "it is not UTF-8", Headed("{\"__metadata__\":{\"a\":\"\xff\"}}", 0)},
      {"utf8-exported_metric.safetensors", kDataLoss, no_metrics, ExportedMetrics(R"({"\ud800":1.0})")},
      {"utf8-exported_metadata.safetensors", kDataLoss, no_object, ExportedMetadata(R"({"a":"\udfff"})")},
  };
}

std::vector<HostileCase> HostilePlaces() {
  using enum absl::StatusCode;
  return {
      {"overflow-shape.safetensors", kDataLoss, "a shape of more bytes than 63 bits can count",
       Tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0)},
      {"overflow-shape_beside_zero.safetensors", kDataLoss, "a shape of more bytes than 63 bits can count",
       Tensor(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])", 0)},
      {"overflow-offset.safetensors", kDataLoss, "are outside the 4 bytes of data",
       At("18446744073709551612,18446744073709551615")},
      {"overflow-number.safetensors", kDataLoss, "a number that is not whole", At("0,18446744073709551616")},
      {"overflow-negative.safetensors", kDataLoss, "a negative number", At("-4,0")},
      {"overlap-tensors.safetensors", kDataLoss, "begins at 2 of the data, where another one ends at 4: they overlap",
       Beside(R"("dtype":"U8","shape":[6],"data_offsets":[2,8])")},
      {"overlap-same_bytes.safetensors", kDataLoss, "they overlap", Beside(kSound)},
      {"overlap-end_before_begin.safetensors", kDataLoss, "data_offsets [4, 0) are outside", At("4,0")},
      {"safetensors-hole.safetensors", kDataLoss, "no tensor has the 2 bytes before it",
       Beside(R"("dtype":"U8","shape":[2],"data_offsets":[6,8])")},
      {"safetensors-bytes_behind_it.safetensors", kDataLoss, "the tensors have 4 bytes of data, and the file has 5",
       Tensor(kSound, 5)},
      {"safetensors-dtype.safetensors", kDataLoss, R"(the dtype '\x1b[31m', which is unknown)",
       Tensor(R"("dtype":"\u001b[31m")")},
      {"path-parent.index.json", kDataLoss, "'../../etc/passwd', which is not a plain file name",
       R"({"weight_map":{"w":"../../etc/passwd"}})"},
      {"path-device.index.json", kDataLoss, "which is not a plain file name", R"({"weight_map":{"w":"/dev/zero"}})"},
      {"name-index_twice.index.json", kDataLoss, "tensor 'w' is there twice", R"({"weight_map":{"w":"a","w":"b"}})"},
      {"nesting-index.index.json", kDataLoss, "parse error", R"({"a":)" + std::string(500'000, '[')},
  };
}

}  // namespace

std::vector<HostileCase> HostileSafetensors() {
  std::vector<HostileCase> cases = HostileHeaders();
  for (auto make : {HostilePlaces, HostileMetadata}) {
    for (HostileCase& more : make()) cases.push_back(std::move(more));
  }
  return cases;
}

}  // namespace tidemark::fuzz
