#include "bench/warm_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "bench/measure.h"

namespace tidemark::bench {
namespace {

// Bytes [begin, end) of the sources put one behind the other.
void CopyRange(const std::vector<std::span<const std::byte>>& sources, uint64_t begin, uint64_t end,
               std::byte* destination) {
  uint64_t source_begin = 0;
  for (const std::span<const std::byte> source : sources) {
    const uint64_t source_end = source_begin + source.size();
    const uint64_t from = std::max(begin, source_begin);
    const uint64_t to = std::min(end, source_end);
    if (from < to) std::memcpy(destination + from, source.data() + (from - source_begin), to - from);
    source_begin = source_end;
  }
}

}  // namespace

WarmMemory::WarmMemory(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, bytes, MADV_HUGEPAGE);  // refused where there are none: then ordinary pages do
  std::memset(memory, 1, bytes);
  bytes_ = {static_cast<std::byte*>(memory), bytes};
}

WarmMemory::~WarmMemory() { munmap(bytes_.data(), bytes_.size()); }

int CopyThreads() {
  constexpr unsigned kThreadsMax = 8;  // as in snapshot/stager.cc
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kThreadsMax));
}

double TimedCopy(const std::vector<std::span<const std::byte>>& sources, std::span<std::byte> destination) {
  uint64_t bytes = 0;
  for (const std::span<const std::byte> source : sources) bytes += source.size();
  const auto threads = static_cast<uint64_t>(CopyThreads());
  const Stopwatch watch;
  {
    std::vector<std::jthread> others;
    for (uint64_t i = 1; i < threads; ++i) {
      others.emplace_back(
          [&, i] { CopyRange(sources, bytes * i / threads, bytes * (i + 1) / threads, destination.data()); });
    }
    CopyRange(sources, 0, bytes / threads, destination.data());
  }
  return watch.seconds();
}

}  // namespace tidemark::bench
