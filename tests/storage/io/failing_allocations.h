// An operator new that fails when it is told to, for the whole of a program that links this and uses a name of it.

#ifndef TIDEMARK_TESTS_STORAGE_IO_FAILING_ALLOCATIONS_H_
#define TIDEMARK_TESTS_STORAGE_IO_FAILING_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>

namespace tidemark {

// The next allocations of this many bytes or more fail on this thread.
extern constinit thread_local size_t allocation_max;

// After so many allocations on this thread one fails, and this is negative from then on. RocksDB does not survive an
// exception in its own code, so nothing that it allocates fails.
extern constinit thread_local int64_t allocations_until_failure;

// To be called before the first of them: allocates what finding out about RocksDB takes.
void PrepareToFailAllocations();

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_STORAGE_IO_FAILING_ALLOCATIONS_H_
