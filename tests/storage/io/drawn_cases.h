// For tests that have more cases than a suite has time for: they draw some, and run all where they are asked to. make
// faults-long asks every test of the sources that call OneOf, AllCasesAsked, or SweepFaults of fault_sweep.h.

#ifndef TIDEMARK_TESTS_STORAGE_IO_DRAWN_CASES_H_
#define TIDEMARK_TESTS_STORAGE_IO_DRAWN_CASES_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "tests/storage/io/sanitizers.h"

namespace tidemark::storage {

// Whether to run every case: the variable TIDEMARK_ALL_CASES is 1.
inline bool AllCasesAsked() {
  const char* asked = std::getenv("TIDEMARK_ALL_CASES");
  return asked != nullptr && asked[0] == '1' && asked[1] == '\0';
}

// By which cases are drawn: the number that the variable TIDEMARK_SEED gives, else any. To be shown by a test that
// fails.
inline uint32_t SeedOfCases() {
  const char* given = std::getenv("TIDEMARK_SEED");
  return given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device()();
}

// Of how many cases one is run: 1 where all are asked for.
inline size_t OneOf(size_t cases, size_t cases_under_sanitizers) {
  if (AllCasesAsked()) return 1;
  return kThreadSanitizer || kAddressSanitizer ? cases_under_sanitizers : cases;
}

// The calls that a test lets fail, one in each run: every one of them, under a sanitizer every fifth (an odd number, so
// that what a test does after every other call has its turn).
struct DrawnCalls {
  size_t stride = OneOf(1, 5);
  size_t first = SeedOfCases() % stride;

  bool are_all() const { return stride == 1; }
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_DRAWN_CASES_H_
