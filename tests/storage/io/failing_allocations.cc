#include "tests/storage/io/failing_allocations.h"

#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <string_view>

namespace tidemark {

constinit thread_local size_t allocation_max = SIZE_MAX;
constinit thread_local int64_t allocations_until_failure = INT64_MAX;

namespace {

bool IsInRocksDb() {
  // dladdr for each frame would take most of the time of the test.
  struct Code {
    uintptr_t begin = 0;
    uintptr_t end = 0;
  };
  static const Code code = [] {
    Code found;
    const auto look = [](dl_phdr_info* info, size_t, void* out) {
      if (std::string_view(info->dlpi_name).find("librocksdb") == std::string_view::npos) return 0;
      for (int i = 0; i < info->dlpi_phnum; ++i) {
        if ((info->dlpi_phdr[i].p_flags & PF_X) == 0) continue;
        const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        *static_cast<Code*>(out) = {.begin = begin, .end = begin + info->dlpi_phdr[i].p_memsz};
      }
      return 1;
    };
    dl_iterate_phdr(look, &found);
    return found;
  }();
  std::array<void*, 64> frames = {};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  return std::any_of(frames.begin(), frames.begin() + count, [](void* frame) {
    const auto address = reinterpret_cast<uintptr_t>(frame);
    return address >= code.begin && address < code.end;
  });
}

bool MayAllocate(size_t size) {
  if (size >= allocation_max) return false;
  if (allocations_until_failure == 0 && IsInRocksDb()) return true;
  return allocations_until_failure-- != 0;
}

}  // namespace

// The first call of backtrace loads a library.
void PrepareToFailAllocations() { IsInRocksDb(); }

}  // namespace tidemark

// Not inlined: gcc would see free at the end of what it takes for new.
[[gnu::noinline]] void* operator new(size_t size) {
  if (tidemark::MayAllocate(size)) {
    if (void* memory = std::malloc(size)) return memory;
  }
  throw std::bad_alloc();
}
// std::stable_sort gives back by `delete` what it takes with std::nothrow.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return tidemark::MayAllocate(size) ? std::malloc(size) : nullptr;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
