// 128-bit names and digests, and the names of files and folders in a store that are made from them.

#ifndef TIDEMARK_STORAGE_BYTES_IDS_H_
#define TIDEMARK_STORAGE_BYTES_IDS_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tidemark::storage {

template <typename Tag>
struct Bytes16 {
  std::array<uint8_t, 16> bytes{};
  friend auto operator<=>(const Bytes16&, const Bytes16&) = default;
};
using StoreId = Bytes16<struct StoreIdTag>;
using AttemptId = Bytes16<struct AttemptIdTag>;
using SessionId = Bytes16<struct SessionIdTag>;  // random; of one opening of a store for writing
using Digest128 = Bytes16<struct Digest128Tag>;  // XXH3-128, canonical (big-endian) byte order

// 16 bytes from the kernel's random source.
std::array<uint8_t, 16> RandomBytes16();

// 32 lower-case hexadecimal digits, and back.
std::string ToHex(const std::array<uint8_t, 16>& bytes);
std::optional<std::array<uint8_t, 16>> FromHex(std::string_view text);

Digest128 DigestOf(std::span<const std::byte> bytes);
uint64_t ChecksumOf(std::span<const std::byte> bytes);  // XXH3-64
// The same, for less if `bytes` are more than a few: `digest` is DigestOf(bytes).
uint64_t ChecksumOf(std::span<const std::byte> bytes, const Digest128& digest);

// An attempt's id says which epoch made it: 8 bytes of the epoch and 8 of a count, both big-endian. So all ranks of an
// attempt know its id without a message, and a sweep tells attempts of older epochs from those that may be in progress.
AttemptId MakeAttemptId(uint64_t epoch, uint64_t ordinal);
uint64_t EpochOf(const AttemptId& attempt);

// "0000001000-<attempt>": ten digits or more.
std::string StepFolderName(int64_t step, const AttemptId& attempt);
struct StepFolder {
  int64_t step = 0;
  AttemptId attempt;
};
// Nothing for a name that StepFolderName would not give.
std::optional<StepFolder> ParseStepFolderName(std::string_view name);

// "shard-00000-of-00001.tmk"
std::string ShardFileName(uint32_t rank, uint32_t world_size);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_BYTES_IDS_H_
