#include "fuzz/allocation_count.h"

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <new>

static std::atomic<uint64_t> allocated_bytes = 0;

#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if !__has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
// Not inlined: gcc would warn that memory of operator new goes to free.
[[gnu::noinline]] void* operator new(size_t size) {
  allocated_bytes.fetch_add(size, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace tidemark::fuzz {

uint64_t AllocatedBytes() { return allocated_bytes.load(std::memory_order_relaxed); }

AllocationBudget::AllocationBudget(size_t input_bytes) : input_bytes_(input_bytes), before_(AllocatedBytes()) {}

AllocationBudget::~AllocationBudget() {
  const uint64_t taken = AllocatedBytes() - before_;
  const uint64_t budget = kBytesFree + kBytesPerByte * input_bytes_;
  if (taken <= budget) return;
  std::fprintf(stderr,
               "fuzz: violated: an input of %" PRIu64 " bytes allocates %" PRIu64 ", more than its %" PRIu64 "\n",
               input_bytes_, taken, budget);
  std::abort();
}

}  // namespace tidemark::fuzz
