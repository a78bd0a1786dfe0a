#include "storage/codec/codec_backend.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "storage/codec/bit_writer.h"
#include "storage/codec/codec_backend_tail.h"

// On the functions and not on the file: what these use of headers is compiled for any CPU everywhere.
#define TIDEMARK_AVX2 [[gnu::target("avx2,bmi2")]]
#define TIDEMARK_AVX2_INLINE [[gnu::target("avx2,bmi2"), gnu::always_inline]] inline

namespace tidemark::storage {
namespace {

TIDEMARK_AVX2_INLINE __m256i Load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
TIDEMARK_AVX2_INLINE void Store(std::byte* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

TIDEMARK_AVX2 void Split2(const std::byte* raw, size_t count, std::byte* const* planes) {
  const __m256i low = _mm256_set1_epi16(0xff);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m256i a = Load(raw + 2 * i);
    __m256i b = Load(raw + 2 * i + 32);
    a = _mm256_or_si256(_mm256_slli_epi16(a, 1), _mm256_srli_epi16(a, 15));
    b = _mm256_or_si256(_mm256_slli_epi16(b, 1), _mm256_srli_epi16(b, 15));
    const __m256i p0 = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
    const __m256i p1 = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    Store(planes[0] + i, _mm256_permute4x64_epi64(p0, 0xd8));
    Store(planes[1] + i, _mm256_permute4x64_epi64(p1, 0xd8));
  }
  SplitTail(2, i, raw, count, planes);
}

TIDEMARK_AVX2 void Join2(const std::byte* const* planes, size_t count, std::byte* raw) {
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i p0 = _mm256_permute4x64_epi64(Load(planes[0] + i), 0xd8);
    const __m256i p1 = _mm256_permute4x64_epi64(Load(planes[1] + i), 0xd8);
    const __m256i a = _mm256_unpacklo_epi8(p0, p1);
    const __m256i b = _mm256_unpackhi_epi8(p0, p1);
    Store(raw + 2 * i, _mm256_or_si256(_mm256_srli_epi16(a, 1), _mm256_slli_epi16(a, 15)));
    Store(raw + 2 * i + 32, _mm256_or_si256(_mm256_srli_epi16(b, 1), _mm256_slli_epi16(b, 15)));
  }
  JoinTail(2, i, planes, count, raw);
}

// In each half, byte k of dword j becomes byte j of dword k. Its own inverse.
TIDEMARK_AVX2_INLINE __m256i TransposeBytes(__m256i value) {
  return _mm256_shuffle_epi8(value, _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                                     0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

// Qword k of rows[j] becomes qword j of rows[k]. Its own inverse.
TIDEMARK_AVX2_INLINE void TransposeQwords(__m256i rows[4]) {
  const __m256i a = _mm256_unpacklo_epi64(rows[0], rows[1]);
  const __m256i b = _mm256_unpackhi_epi64(rows[0], rows[1]);
  const __m256i c = _mm256_unpacklo_epi64(rows[2], rows[3]);
  const __m256i d = _mm256_unpackhi_epi64(rows[2], rows[3]);
  rows[0] = _mm256_permute2x128_si256(a, c, 0x20);
  rows[1] = _mm256_permute2x128_si256(b, d, 0x20);
  rows[2] = _mm256_permute2x128_si256(a, c, 0x31);
  rows[3] = _mm256_permute2x128_si256(b, d, 0x31);
}

// Dword k of rows[j] becomes dword j of rows[k]. Its own inverse.
TIDEMARK_AVX2_INLINE void TransposeDwords(__m256i rows[8]) {
  __m256i pairs[8];
  for (int j = 0; j < 8; j += 2) {
    pairs[j] = _mm256_unpacklo_epi32(rows[j], rows[j + 1]);
    pairs[j + 1] = _mm256_unpackhi_epi32(rows[j], rows[j + 1]);
  }
  // Of rows 4h to 4h + 3: dword k in the lower half of quads[4 * h + k], dword k + 4 in the upper half.
  __m256i quads[8];
  for (int h = 0; h < 8; h += 4) {
    quads[h] = _mm256_unpacklo_epi64(pairs[h], pairs[h + 2]);
    quads[h + 1] = _mm256_unpackhi_epi64(pairs[h], pairs[h + 2]);
    quads[h + 2] = _mm256_unpacklo_epi64(pairs[h + 1], pairs[h + 3]);
    quads[h + 3] = _mm256_unpackhi_epi64(pairs[h + 1], pairs[h + 3]);
  }
  for (int k = 0; k < 4; ++k) {
    rows[k] = _mm256_permute2x128_si256(quads[k], quads[k + 4], 0x20);
    rows[k + 4] = _mm256_permute2x128_si256(quads[k], quads[k + 4], 0x31);
  }
}

TIDEMARK_AVX2 void Split4(const std::byte* raw, size_t count, std::byte* const* planes) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m256i rows[4];
    for (int j = 0; j < 4; ++j) {
      __m256i row = Load(raw + 4 * i + 32 * j);
      row = _mm256_or_si256(_mm256_slli_epi32(row, 1), _mm256_srli_epi32(row, 31));
      rows[j] = _mm256_permutevar8x32_epi32(TransposeBytes(row), order);
    }
    TransposeQwords(rows);
    for (int k = 0; k < 4; ++k) Store(planes[k] + i, rows[k]);
  }
  SplitTail(4, i, raw, count, planes);
}

TIDEMARK_AVX2 void Join4(const std::byte* const* planes, size_t count, std::byte* raw) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m256i rows[4];
    for (int k = 0; k < 4; ++k) rows[k] = Load(planes[k] + i);
    TransposeQwords(rows);
    for (int j = 0; j < 4; ++j) {
      const __m256i row = TransposeBytes(_mm256_permutevar8x32_epi32(rows[j], order));
      Store(raw + 4 * i + 32 * j, _mm256_or_si256(_mm256_srli_epi32(row, 1), _mm256_slli_epi32(row, 31)));
    }
  }
  JoinTail(4, i, planes, count, raw);
}

TIDEMARK_AVX2 void Split8(const std::byte* raw, size_t count, std::byte* const* planes) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m256i rows[8];
    for (int j = 0; j < 8; ++j) {
      __m256i row = Load(raw + 8 * i + 32 * j);
      row = _mm256_or_si256(_mm256_slli_epi64(row, 1), _mm256_srli_epi64(row, 63));
      rows[j] = TransposeBytes(_mm256_permutevar8x32_epi32(row, order));
    }
    TransposeDwords(rows);
    for (int k = 0; k < 8; ++k) Store(planes[k] + i, rows[k]);
  }
  SplitTail(8, i, raw, count, planes);
}

TIDEMARK_AVX2 void Join8(const std::byte* const* planes, size_t count, std::byte* raw) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    __m256i rows[8];
    for (int k = 0; k < 8; ++k) rows[k] = Load(planes[k] + i);
    TransposeDwords(rows);
    for (int j = 0; j < 8; ++j) {
      const __m256i row = _mm256_permutevar8x32_epi32(TransposeBytes(rows[j]), order);
      Store(raw + 8 * i + 32 * j, _mm256_or_si256(_mm256_srli_epi64(row, 1), _mm256_slli_epi64(row, 63)));
    }
  }
  JoinTail(8, i, planes, count, raw);
}

// Sixteen bytes, twice: what a byte shuffle looks up in.
TIDEMARK_AVX2_INLINE __m256i LoadTwice(const uint8_t* table) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}

// A set of bytes as bits: bit h % 8 of rows[h / 8][l] stands for the byte 16 * h + l.
struct ByteSet {
  alignas(16) uint8_t rows[2][16];
};
ByteSet SetOf(const BytesPresent& present) {
  ByteSet set{};
  for (size_t byte = 0; byte < 256; ++byte) {
    set.rows[byte / 128][byte % 16] |= static_cast<uint8_t>(present[byte] << (byte / 16 % 8));
  }
  return set;
}

TIDEMARK_AVX2 void MarkPresent(std::span<const std::byte> bytes, BytesPresent* present) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i bit_of = _mm256_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128,  //
                                          1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  ByteSet set = SetOf(*present);
  size_t i = 0;
  for (; i + 32 <= bytes.size(); i += 32) {
    const __m256i vector = Load(bytes.data() + i);
    const __m256i low = _mm256_and_si256(vector, nibble);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(vector, 4), nibble);
    const __m256i row = _mm256_blendv_epi8(_mm256_shuffle_epi8(LoadTwice(set.rows[0]), low),
                                           _mm256_shuffle_epi8(LoadTwice(set.rows[1]), low), vector);
    const __m256i known = _mm256_and_si256(row, _mm256_shuffle_epi8(bit_of, high));
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(known, _mm256_setzero_si256())) == 0) continue;
    PortableCodecBackend().mark_present(bytes.subspan(i, 32), present);
    set = SetOf(*present);
  }
  PortableCodecBackend().mark_present(bytes.subspan(i), present);
}

TIDEMARK_AVX2 std::byte* EncodeStream(std::span<const std::byte> symbols, const HuffmanCode& code, std::byte* out) {
  return WriteSymbols(symbols, code, out);
}

}  // namespace

const CodecBackend* Avx2CodecBackend() {
  static constexpr CodecBackend kBackend = {
      "avx2", {Split2, Split4, Split8}, {Join2, Join4, Join8}, MarkPresent, EncodeStream};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") ? &kBackend : nullptr;
}

}  // namespace tidemark::storage

#else

namespace tidemark::storage {
const CodecBackend* Avx2CodecBackend() { return nullptr; }
}  // namespace tidemark::storage

#endif
