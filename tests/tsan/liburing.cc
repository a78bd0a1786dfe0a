// Tells ThreadSanitizer when the memory of a ring is given back. liburing maps and unmaps it by system calls of its
// own, not the C library's, so that the sanitizer takes a ring for a later use of an earlier one's memory, by whichever
// thread, where the kernel has put it at the same address. What the kernel does there orders the two: who maps memory
// comes after who has unmapped it.

#include <liburing.h>
#include <sanitizer/tsan_interface.h>

#include <cstddef>

#include "tests/tsan/wrap.h"

namespace {

constexpr size_t kPageBytes = 4096;

void OfEachPage(void* memory, size_t size, void (*tell)(void*)) {
  for (size_t offset = 0; offset < size; offset += kPageBytes) tell(static_cast<char*>(memory) + offset);
}

// What is mapped for it: both rings, one region in all kernels since Linux 5.4, and the array of submission entries.
void OfEachPage(const io_uring& ring, void (*tell)(void*)) {
  OfEachPage(ring.sq.ring_ptr, ring.sq.ring_sz, tell);
  if (ring.cq.ring_ptr != ring.sq.ring_ptr) OfEachPage(ring.cq.ring_ptr, ring.cq.ring_sz, tell);
  OfEachPage(ring.sq.sqes, ring.sq.ring_entries * sizeof(io_uring_sqe), tell);
}

}  // namespace

extern "C" {

TIDEMARK_WRAP(int, io_uring_queue_init, unsigned entries, io_uring* ring, unsigned flags) {
  const int result = __real_io_uring_queue_init(entries, ring, flags);
  if (result == 0) OfEachPage(*ring, __tsan_acquire);
  return result;
}

TIDEMARK_WRAP(void, io_uring_queue_exit, io_uring* ring) {
  OfEachPage(*ring, __tsan_release);
  __real_io_uring_queue_exit(ring);
}

}  // extern "C"
