#include "snapshot/staging/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tidemark {
namespace {

void CopyPortable(std::byte* destination, const std::byte* source, size_t bytes) {
  std::memcpy(destination, source, bytes);
}

#if defined(__x86_64__)

constexpr size_t kLineBytes = 64;

// Streaming stores take whole, aligned lines: copies up to the first of them, and returns how much that was.
size_t CopyHead(std::byte* destination, const std::byte* source, size_t bytes) {
  const size_t misaligned = reinterpret_cast<uintptr_t>(destination) % kLineBytes;
  const size_t head = std::min(bytes, misaligned == 0 ? 0 : kLineBytes - misaligned);
  std::memcpy(destination, source, head);
  return head;
}

__attribute__((target("avx2"))) void CopyAvx2(std::byte* destination, const std::byte* source, size_t bytes) {
  size_t done = CopyHead(destination, source, bytes);
  for (; done + kLineBytes <= bytes; done += kLineBytes) {
    const auto* from = reinterpret_cast<const __m256i*>(source + done);
    auto* to = reinterpret_cast<__m256i*>(destination + done);
    const __m256i low = _mm256_loadu_si256(from);
    const __m256i high = _mm256_loadu_si256(from + 1);
    _mm256_stream_si256(to, low);
    _mm256_stream_si256(to + 1, high);
  }
  std::memcpy(destination + done, source + done, bytes - done);
  _mm_sfence();  // streaming stores are not ordered with the store that says that they are done
}

__attribute__((target("avx512f"))) void CopyAvx512(std::byte* destination, const std::byte* source, size_t bytes) {
  size_t done = CopyHead(destination, source, bytes);
  for (; done + 2 * kLineBytes <= bytes; done += 2 * kLineBytes) {
    const __m512i low = _mm512_loadu_si512(source + done);
    const __m512i high = _mm512_loadu_si512(source + done + kLineBytes);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(destination + done), low);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(destination + done + kLineBytes), high);
  }
  std::memcpy(destination + done, source + done, bytes - done);
  _mm_sfence();
}

#endif

std::vector<StreamingCopy> Runnable() {
  std::vector<StreamingCopy> copies;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) copies.push_back({"avx512", CopyAvx512});
  if (__builtin_cpu_supports("avx2")) copies.push_back({"avx2", CopyAvx2});
#endif
  copies.push_back({"portable", CopyPortable});
  return copies;
}

}  // namespace

std::span<const StreamingCopy> RunnableStreamingCopies() {
  static const auto* copies = new std::vector<StreamingCopy>(Runnable());
  return *copies;
}

}  // namespace tidemark
