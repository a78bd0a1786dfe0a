#include "bench/warm_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "bench/measure.h"
#include "snapshot/staging/copy_pool.h"

namespace tidemark::bench {
namespace {

// A piece that one thread copies at a time: small enough for no thread to wait long for another.
constexpr size_t kPieceBytes = 2 << 20;

struct Piece {
  const std::byte* from;
  std::byte* to;
  size_t bytes;
};

std::vector<Piece> Pieces(const std::vector<std::span<const std::byte>>& sources, std::byte* destination) {
  std::vector<Piece> pieces;
  for (const std::span<const std::byte> source : sources) {
    for (size_t begin = 0; begin < source.size(); begin += kPieceBytes) {
      const size_t bytes = std::min(kPieceBytes, source.size() - begin);
      pieces.push_back({source.data() + begin, destination, bytes});
      destination += bytes;
    }
  }
  return pieces;
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
  const std::vector<Piece> pieces = Pieces(sources, destination.data());
  CopyPool pool(CopyThreads());  // as the stager has one
  const Stopwatch watch;
  pool.Run(pieces.size(), [&](size_t i) { std::memcpy(pieces[i].to, pieces[i].from, pieces[i].bytes); });
  return watch.seconds();
}

}  // namespace tidemark::bench
