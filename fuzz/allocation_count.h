// Counts the memory that a program allocates in C++. It replaces operator new of the whole program that it is linked
// into: a fuzz target, or a test that is a program of its own. Memory of C libraries and of AlignedBuffer is not
// counted. Under AddressSanitizer nothing is counted, because libFuzzer frees memory there that the sanitizer's own
// operator new returned. So the budget is enforced when an ordinary build replays the corpora.

#ifndef TIDEMARK_FUZZ_ALLOCATION_COUNT_H_
#define TIDEMARK_FUZZ_ALLOCATION_COUNT_H_

#include <cstddef>
#include <cstdint>

namespace tidemark::fuzz {

// Bytes allocated by all threads since the program began. Freed memory is not subtracted, so repeated work counts like
// memory that is taken at once.
uint64_t AllocatedBytes();

// Ends the process if more is allocated during its life than an input of that size may cost: kBytesFree, and
// kBytesPerByte for each of its bytes. An entry of an index has at least 25 bytes. As a struct it has about 150, and a
// growing vector allocates it twice. Owned by one thread; allocations of other threads count too.
class AllocationBudget {
 public:
  static constexpr uint64_t kBytesFree = 32 << 20;
  static constexpr uint64_t kBytesPerByte = 64;

  explicit AllocationBudget(size_t input_bytes);
  AllocationBudget(const AllocationBudget&) = delete;
  AllocationBudget& operator=(const AllocationBudget&) = delete;
  ~AllocationBudget();

 private:
  const uint64_t input_bytes_;
  const uint64_t before_;
};

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_ALLOCATION_COUNT_H_
