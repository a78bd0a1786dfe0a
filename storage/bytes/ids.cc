#include "storage/bytes/ids.h"

#include <sys/random.h>

#include <cstdlib>
#include <cstring>

#include "fmt/format.h"
// Loops for the vectors that this CPU has, where the library was built with them: several times the speed of its plain
// ones, and the same values.
#if defined(TIDEMARK_XXHASH_DISPATCH)
#include <immintrin.h>

#include "xxh_x86dispatch.h"
#else
#include "xxhash.h"
#endif

namespace tidemark::storage {
namespace {

constexpr size_t kNumberBytes = sizeof(uint64_t);  // of an attempt's id

// The library's vector loops return with the upper halves of the registers in use, and while they are, all SSE code
// that follows on the thread, the caller's too, runs at a quarter of its speed.
#if defined(TIDEMARK_XXHASH_DISPATCH)
[[gnu::target("avx")]] void ClearUpperHalves() { _mm256_zeroupper(); }
void LeaveVectorLoops() {
  static const bool has_upper_halves = __builtin_cpu_supports("avx");
  if (has_upper_halves) ClearUpperHalves();
}
#else
void LeaveVectorLoops() {}
#endif

}  // namespace

std::array<uint8_t, 16> RandomBytes16() {
  std::array<uint8_t, 16> bytes;
  // 16 bytes are never cut short once the kernel's pool is up, and getrandom waits for that.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  return bytes;
}

std::string ToHex(const std::array<uint8_t, 16>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(2 * bytes.size(), '0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    text[2 * i] = kDigits[bytes[i] >> 4];
    text[2 * i + 1] = kDigits[bytes[i] & 15];
  }
  return text;
}

std::optional<std::array<uint8_t, 16>> FromHex(std::string_view text) {
  std::array<uint8_t, 16> bytes;
  if (text.size() != 2 * bytes.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    int digit;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    bytes[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? digit << 4 : bytes[i / 2] | digit);
  }
  return bytes;
}

Digest128 DigestOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  LeaveVectorLoops();
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest128 digest;
  static_assert(sizeof(canonical.digest) == sizeof(digest.bytes));
  std::memcpy(digest.bytes.data(), canonical.digest, sizeof(canonical.digest));
  return digest;
}

uint64_t ChecksumOf(std::span<const std::byte> bytes) {
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  LeaveVectorLoops();
  return hash;
}

// XXH3 ends in the same way for both widths once its input is longer than its short cuts reach: the 64-bit hash is then
// the lower half of the other. That is no promise of the algorithm's page, but its values are frozen.
uint64_t ChecksumOf(std::span<const std::byte> bytes, const Digest128& digest) {
  constexpr size_t kShortcutBytesMax = 240;
  if (bytes.size() <= kShortcutBytesMax) return ChecksumOf(bytes);
  XXH128_canonical_t canonical;
  std::memcpy(canonical.digest, digest.bytes.data(), sizeof(canonical.digest));
  return XXH128_hashFromCanonical(&canonical).low64;
}

AttemptId MakeAttemptId(uint64_t epoch, uint64_t ordinal) {
  AttemptId attempt;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    attempt.bytes[i] = static_cast<uint8_t>(epoch >> (8 * (kNumberBytes - 1 - i)));
    attempt.bytes[kNumberBytes + i] = static_cast<uint8_t>(ordinal >> (8 * (kNumberBytes - 1 - i)));
  }
  return attempt;
}

uint64_t EpochOf(const AttemptId& attempt) {
  uint64_t epoch = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) epoch = epoch << 8 | attempt.bytes[i];
  return epoch;
}

std::string StepFolderName(int64_t step, const AttemptId& attempt) {
  return fmt::format("{:010}-{}", step, ToHex(attempt.bytes));
}

std::optional<StepFolder> ParseStepFolderName(std::string_view name) {
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos || dash < 10 || dash > 19) return std::nullopt;
  StepFolder folder;
  for (char c : name.substr(0, dash)) {
    if (c < '0' || c > '9') return std::nullopt;
    if (__builtin_mul_overflow(folder.step, 10, &folder.step)) return std::nullopt;
    if (__builtin_add_overflow(folder.step, c - '0', &folder.step)) return std::nullopt;
  }
  const auto attempt = FromHex(name.substr(dash + 1));
  if (!attempt) return std::nullopt;
  folder.attempt.bytes = *attempt;
  if (StepFolderName(folder.step, folder.attempt) != name) return std::nullopt;
  return folder;
}

std::string ShardFileName(uint32_t rank, uint32_t world_size) {
  return fmt::format("shard-{:05}-of-{:05}.tmk", rank, world_size);
}

}  // namespace tidemark::storage
