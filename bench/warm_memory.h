// Memory as fast as it gets: what staging is held against copies into it.

#ifndef TIDEMARK_BENCH_WARM_MEMORY_H_
#define TIDEMARK_BENCH_WARM_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tidemark::bench {

// Anonymous memory on huge pages where the system gives them, every page touched. Ends the process
// where there is none.
class WarmMemory {
 public:
  explicit WarmMemory(uint64_t bytes);
  ~WarmMemory();
  WarmMemory(const WarmMemory&) = delete;
  WarmMemory& operator=(const WarmMemory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

// As many threads as a save copies with.
int CopyThreads();

// Copies the sources one behind the other to `destination`, CopyThreads() threads sharing the work, and returns how
// long that took, in seconds. Precondition: `destination` has room.
double TimedCopy(const std::vector<std::span<const std::byte>>& sources, std::span<std::byte> destination);

}  // namespace tidemark::bench

#endif  // TIDEMARK_BENCH_WARM_MEMORY_H_
