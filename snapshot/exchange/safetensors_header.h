// The header of a safetensors file, as a struct and pure functions between it and text.
//
//   length of the text (8 bytes, little-endian) | text: a JSON object | the tensors' bytes, without holes
//
// Decoding trusts nothing: every length is held against the file before anything is allocated, and what the format
// leaves open (a key twice, a byte that belongs to no tensor) is refused. kDataLoss names the tensor, what was expected
// and what was found; names are made printable.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_SAFETENSORS_HEADER_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/entry.h"

namespace tidemark {

inline constexpr size_t kSafetensorsLengthBytes = 8;

// As in the format's own library.
inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;

// Caps that keep a header of that size from taking several times as much memory. The largest models have some 100,000
// tensors, in all of their files.
inline constexpr size_t kSafetensorsTensorsMax = size_t{1} << 18;
inline constexpr size_t kSafetensorsMetadataMax = size_t{1} << 18;  // strings
inline constexpr size_t kSafetensorsStringBytesMax = size_t{16} << 20;

struct SafetensorsTensor {
  std::string name;
  Dtype dtype = Dtype::kUint8;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // of its bytes, from the end of the header
  uint64_t end = 0;    // exclusive
  friend bool operator==(const SafetensorsTensor&, const SafetensorsTensor&) = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;       // by `begin` and `end`
  std::map<std::string, std::string> metadata;  // "__metadata__"
  friend bool operator==(const SafetensorsHeader&, const SafetensorsHeader&) = default;
};

// "F32"; empty: the format has no name for it. kFloat4E2M1FnX2 is "F4", of which two are one element of ours.
std::string_view SafetensorsDtypeName(Dtype dtype);

// How long the text is, of a file of so many bytes that begins with `bytes`.
absl::StatusOr<uint64_t> DecodeSafetensorsLength(std::span<const std::byte, kSafetensorsLengthBytes> bytes,
                                                 uint64_t file_bytes);

// `data_bytes`: what the file has behind the text. kInvalidArgument: a tensor is of a type that Tidemark has none for,
// or has more dimensions than an entry may have.
absl::StatusOr<SafetensorsHeader> DecodeSafetensorsHeader(std::string_view text, uint64_t data_bytes);

// Length and text, with spaces behind it so that the data begins at a multiple of 8. kInvalidArgument: a tensor's type
// has no name in the format, a name comes twice or is the one that is kept for metadata, or it all gets longer than a
// reader takes. Precondition: the tensors' bytes follow each other in their order and have the sizes of their shapes.
absl::StatusOr<std::string> EncodeSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_SAFETENSORS_HEADER_H_
