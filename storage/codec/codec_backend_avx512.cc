#include "storage/codec/codec_backend.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "storage/codec/bit_writer.h"
#include "storage/codec/codec_backend_tail.h"

// On the functions and not on the file: what these use of headers is compiled for any CPU everywhere.
#define TIDEMARK_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi2")]]
#define TIDEMARK_AVX512_INLINE [[gnu::target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi2"), gnu::always_inline]] inline

namespace tidemark::storage {
namespace {

using ByteIndex = std::array<uint8_t, 64>;

TIDEMARK_AVX512_INLINE __m512i Load(const void* from) { return _mm512_loadu_si512(from); }
TIDEMARK_AVX512_INLINE void Store(void* to, __m512i value) { _mm512_storeu_si512(to, value); }

// To bring bytes together by their place in numbers of `width` bytes: byte k of number j becomes byte j of run k.
constexpr ByteIndex Gather(size_t width) {
  ByteIndex index{};
  for (size_t i = 0; i < 64; ++i) index[i] = static_cast<uint8_t>(i % (64 / width) * width + i / (64 / width));
  return index;
}
// The inverse.
constexpr ByteIndex Scatter(size_t width) { return Gather(64 / width); }

TIDEMARK_AVX512 void Split2(const std::byte* raw, size_t count, std::byte* const* planes) {
  static constexpr ByteIndex kGather = Gather(2);
  const __m512i gather = Load(kGather.data());
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    __m512i a = Load(raw + 2 * i);
    __m512i b = Load(raw + 2 * i + 64);
    a = _mm512_or_si512(_mm512_slli_epi16(a, 1), _mm512_srli_epi16(a, 15));
    b = _mm512_or_si512(_mm512_slli_epi16(b, 1), _mm512_srli_epi16(b, 15));
    a = _mm512_permutexvar_epi8(gather, a);
    b = _mm512_permutexvar_epi8(gather, b);
    Store(planes[0] + i, _mm512_shuffle_i64x2(a, b, 0x44));
    Store(planes[1] + i, _mm512_shuffle_i64x2(a, b, 0xee));
  }
  SplitTail(2, i, raw, count, planes);
}

TIDEMARK_AVX512 void Join2(const std::byte* const* planes, size_t count, std::byte* raw) {
  static constexpr ByteIndex kScatter = Scatter(2);
  const __m512i scatter = Load(kScatter.data());
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    const __m512i p0 = Load(planes[0] + i);
    const __m512i p1 = Load(planes[1] + i);
    const __m512i a = _mm512_permutexvar_epi8(scatter, _mm512_shuffle_i64x2(p0, p1, 0x44));
    const __m512i b = _mm512_permutexvar_epi8(scatter, _mm512_shuffle_i64x2(p0, p1, 0xee));
    Store(raw + 2 * i, _mm512_or_si512(_mm512_srli_epi16(a, 1), _mm512_slli_epi16(a, 15)));
    Store(raw + 2 * i + 64, _mm512_or_si512(_mm512_srli_epi16(b, 1), _mm512_slli_epi16(b, 15)));
  }
  JoinTail(2, i, planes, count, raw);
}

// Quarter k of rows[j] becomes quarter j of rows[k]. Its own inverse.
TIDEMARK_AVX512_INLINE void TransposeQuarters(__m512i rows[4]) {
  const __m512i a = _mm512_shuffle_i64x2(rows[0], rows[1], 0x44);
  const __m512i b = _mm512_shuffle_i64x2(rows[0], rows[1], 0xee);
  const __m512i c = _mm512_shuffle_i64x2(rows[2], rows[3], 0x44);
  const __m512i d = _mm512_shuffle_i64x2(rows[2], rows[3], 0xee);
  rows[0] = _mm512_shuffle_i64x2(a, c, 0x88);
  rows[1] = _mm512_shuffle_i64x2(a, c, 0xdd);
  rows[2] = _mm512_shuffle_i64x2(b, d, 0x88);
  rows[3] = _mm512_shuffle_i64x2(b, d, 0xdd);
}

// Qword k of rows[j] becomes qword j of rows[k]. Its own inverse.
TIDEMARK_AVX512_INLINE void TransposeQwords(__m512i rows[8]) {
  // Qword 2q and 2q + 1 of two rows each, for every quarter q, and then the quarters.
  __m512i even[4];
  __m512i odd[4];
  for (int j = 0; j < 4; ++j) {
    even[j] = _mm512_unpacklo_epi64(rows[2 * j], rows[2 * j + 1]);
    odd[j] = _mm512_unpackhi_epi64(rows[2 * j], rows[2 * j + 1]);
  }
  TransposeQuarters(even);
  TransposeQuarters(odd);
  for (int q = 0; q < 4; ++q) {
    rows[2 * q] = even[q];
    rows[2 * q + 1] = odd[q];
  }
}

TIDEMARK_AVX512 void Split4(const std::byte* raw, size_t count, std::byte* const* planes) {
  static constexpr ByteIndex kGather = Gather(4);
  const __m512i gather = Load(kGather.data());
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    __m512i rows[4];
    for (int j = 0; j < 4; ++j) {
      rows[j] = _mm512_permutexvar_epi8(gather, _mm512_rol_epi32(Load(raw + 4 * i + 64 * j), 1));
    }
    TransposeQuarters(rows);
    for (int k = 0; k < 4; ++k) Store(planes[k] + i, rows[k]);
  }
  SplitTail(4, i, raw, count, planes);
}

TIDEMARK_AVX512 void Join4(const std::byte* const* planes, size_t count, std::byte* raw) {
  static constexpr ByteIndex kScatter = Scatter(4);
  const __m512i scatter = Load(kScatter.data());
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    __m512i rows[4];
    for (int k = 0; k < 4; ++k) rows[k] = Load(planes[k] + i);
    TransposeQuarters(rows);
    for (int j = 0; j < 4; ++j) {
      Store(raw + 4 * i + 64 * j, _mm512_ror_epi32(_mm512_permutexvar_epi8(scatter, rows[j]), 1));
    }
  }
  JoinTail(4, i, planes, count, raw);
}

TIDEMARK_AVX512 void Split8(const std::byte* raw, size_t count, std::byte* const* planes) {
  static constexpr ByteIndex kGather = Gather(8);
  const __m512i gather = Load(kGather.data());
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    __m512i rows[8];
    for (int j = 0; j < 8; ++j) {
      rows[j] = _mm512_permutexvar_epi8(gather, _mm512_rol_epi64(Load(raw + 8 * i + 64 * j), 1));
    }
    TransposeQwords(rows);
    for (int k = 0; k < 8; ++k) Store(planes[k] + i, rows[k]);
  }
  SplitTail(8, i, raw, count, planes);
}

TIDEMARK_AVX512 void Join8(const std::byte* const* planes, size_t count, std::byte* raw) {
  static constexpr ByteIndex kScatter = Scatter(8);
  const __m512i scatter = Load(kScatter.data());
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    __m512i rows[8];
    for (int k = 0; k < 8; ++k) rows[k] = Load(planes[k] + i);
    TransposeQwords(rows);
    for (int j = 0; j < 8; ++j) {
      Store(raw + 8 * i + 64 * j, _mm512_ror_epi64(_mm512_permutexvar_epi8(scatter, rows[j]), 1));
    }
  }
  JoinTail(8, i, planes, count, raw);
}

// 256 bytes in four registers, looked up 64 at a time.
struct ByteTable {
  __m512i rows[4];
};
TIDEMARK_AVX512_INLINE ByteTable LoadTable(const uint8_t* table) {
  return {{Load(table), Load(table + 64), Load(table + 128), Load(table + 192)}};
}
// `upper` marks the bytes of 128 and more.
TIDEMARK_AVX512_INLINE __m512i LookUp(const ByteTable& table, __m512i bytes, __mmask64 upper) {
  const __m512i low = _mm512_permutex2var_epi8(table.rows[0], bytes, table.rows[1]);
  if (upper == 0) return low;
  return _mm512_mask_blend_epi8(upper, low, _mm512_permutex2var_epi8(table.rows[2], bytes, table.rows[3]));
}

TIDEMARK_AVX512 void MarkPresent(std::span<const std::byte> bytes, BytesPresent* present) {
  ByteTable table = LoadTable(present->data());
  size_t i = 0;
  for (; i + 64 <= bytes.size(); i += 64) {
    const __m512i vector = Load(bytes.data() + i);
    const __m512i known = LookUp(table, vector, _mm512_movepi8_mask(vector));
    if (_mm512_test_epi8_mask(known, known) == ~uint64_t{0}) continue;
    PortableCodecBackend().mark_present(bytes.subspan(i, 64), present);
    table = LoadTable(present->data());
  }
  PortableCodecBackend().mark_present(bytes.subspan(i), present);
}

// Codes and their lengths, each in a lane of its own.
struct Codes {
  __m512i words;
  __m512i bits;
};

// The code of the earlier symbols, which is read first, lies above that of the later ones.
TIDEMARK_AVX512_INLINE Codes Concatenate32(Codes earlier, Codes later) {
  return {_mm512_or_si512(_mm512_sllv_epi32(earlier.words, later.bits), later.words),
          _mm512_add_epi32(earlier.bits, later.bits)};
}
TIDEMARK_AVX512_INLINE Codes Concatenate64(Codes earlier, Codes later) {
  return {_mm512_or_si512(_mm512_sllv_epi64(earlier.words, later.bits), later.words),
          _mm512_add_epi64(earlier.bits, later.bits)};
}
TIDEMARK_AVX512_INLINE Codes Even16(Codes codes) {
  const __m512i mask = _mm512_set1_epi32(0xffff);
  return {_mm512_and_si512(codes.words, mask), _mm512_and_si512(codes.bits, mask)};
}
TIDEMARK_AVX512_INLINE Codes Odd16(Codes codes) {
  return {_mm512_srli_epi32(codes.words, 16), _mm512_srli_epi32(codes.bits, 16)};
}
TIDEMARK_AVX512_INLINE Codes Even32(Codes codes) {
  const __m512i mask = _mm512_set1_epi64(0xffffffff);
  return {_mm512_and_si512(codes.words, mask), _mm512_and_si512(codes.bits, mask)};
}
TIDEMARK_AVX512_INLINE Codes Odd32(Codes codes) {
  return {_mm512_srli_epi64(codes.words, 32), _mm512_srli_epi64(codes.bits, 32)};
}

// Of 64 symbols, in lanes of four; those of `odd` follow those of `even`.
struct Quads {
  Codes even;
  Codes odd;
};

struct CodeTables {
  ByteTable bits;
  ByteTable low;
  ByteTable high;
};

// All codes are looked up at once and put together in lanes that grow with them.
TIDEMARK_AVX512_INLINE Quads LookUpQuads(const CodeTables& tables, __m512i symbols) {
  constexpr __mmask64 kOddBytes = 0xaaaaaaaaaaaaaaaa;
  const __mmask64 upper = _mm512_movepi8_mask(symbols);
  const __m512i bits = LookUp(tables.bits, symbols, upper);
  const __m512i low = LookUp(tables.low, symbols, upper);
  const __m512i high = LookUp(tables.high, symbols, upper);
  // Lanes of 16 bits with the code of one symbol, the even and the odd ones.
  const Codes even = {_mm512_mask_blend_epi8(kOddBytes, low, _mm512_slli_epi16(high, 8)),
                      _mm512_and_si512(bits, _mm512_set1_epi16(0xff))};
  const Codes odd = {_mm512_mask_blend_epi8(kOddBytes, _mm512_srli_epi16(low, 8), high), _mm512_srli_epi16(bits, 8)};
  // Lanes of 32 bits with two symbols: 22 bits at most.
  const Codes even_pairs = Concatenate32(Even16(even), Even16(odd));
  const Codes odd_pairs = Concatenate32(Odd16(even), Odd16(odd));
  // Lanes of 64 bits with four symbols: 44 bits at most.
  return {Concatenate64(Even32(even_pairs), Even32(odd_pairs)), Concatenate64(Odd32(even_pairs), Odd32(odd_pairs))};
}

// Lanes 2k and 2k + 1 as one, k < 4.
TIDEMARK_AVX512_INLINE Codes ConcatenateNeighbours(Codes codes) {
  const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
  const __m512i odd = _mm512_setr_epi64(1, 3, 5, 7, 1, 3, 5, 7);
  return Concatenate64({_mm512_permutexvar_epi64(even, codes.words), _mm512_permutexvar_epi64(even, codes.bits)},
                       {_mm512_permutexvar_epi64(odd, codes.words), _mm512_permutexvar_epi64(odd, codes.bits)});
}

// Whether each lane can be added to a writer that has just been flushed.
TIDEMARK_AVX512_INLINE bool FitWriter(Codes codes) {
  return _mm512_cmpgt_epu64_mask(codes.bits, _mm512_set1_epi64(BitWriter::kPendingBitsMax - 7)) == 0;
}

// The lanes below `kLanes`, the last one first.
template <int kLanes>
TIDEMARK_AVX512_INLINE void WriteLanes(Codes codes, BitWriter* writer) {
  alignas(64) uint64_t words[8];
  alignas(64) uint64_t bits[8];
  Store(words, codes.words);
  Store(bits, codes.bits);
#pragma GCC unroll 8
  for (int k = kLanes - 1; k >= 0; --k) {
    writer->Add(words[k], bits[k]);
    writer->Flush();
  }
}

// 64 symbols a turn. The serial part has as few words to write as their codes fit into: four of sixteen symbols, eight
// of eight, or sixteen of four, which always do.
TIDEMARK_AVX512 std::byte* EncodeStream(std::span<const std::byte> symbols, const HuffmanCode& code, std::byte* out) {
  const CodeTables tables = {LoadTable(code.bits.data()), LoadTable(code.low.data()), LoadTable(code.high.data())};
  BitWriter writer(out);
  size_t i = symbols.size();
  for (; i % 64 != 0; writer.Flush()) AddSymbol(symbols[--i], code, &writer);
  for (; i > 0; i -= 64) {
    const Quads quads = LookUpQuads(tables, Load(symbols.data() + i - 64));
    const Codes octets = Concatenate64(quads.even, quads.odd);
    if (FitWriter(octets)) {
      const Codes sixteens = ConcatenateNeighbours(octets);
      if (FitWriter(sixteens)) {
        WriteLanes<4>(sixteens, &writer);
      } else {
        WriteLanes<8>(octets, &writer);
      }
      continue;
    }
    const __m512i low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    WriteLanes<8>({_mm512_permutex2var_epi64(quads.even.words, high, quads.odd.words),
                   _mm512_permutex2var_epi64(quads.even.bits, high, quads.odd.bits)},
                  &writer);
    WriteLanes<8>({_mm512_permutex2var_epi64(quads.even.words, low, quads.odd.words),
                   _mm512_permutex2var_epi64(quads.even.bits, low, quads.odd.bits)},
                  &writer);
  }
  return writer.Finish();
}

bool IsRunnable() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("bmi2");
}

}  // namespace

const CodecBackend* Avx512CodecBackend() {
  static constexpr CodecBackend kBackend = {
      "avx512", {Split2, Split4, Split8}, {Join2, Join4, Join8}, MarkPresent, EncodeStream};
  return IsRunnable() ? &kBackend : nullptr;
}

}  // namespace tidemark::storage

#else

namespace tidemark::storage {
const CodecBackend* Avx512CodecBackend() { return nullptr; }
}  // namespace tidemark::storage

#endif
